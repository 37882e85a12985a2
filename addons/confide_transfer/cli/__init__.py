"""The commands `confide import`, `confide export` and `confide daemon move`."""
