"""The commands `confide import`, `confide export` and `confide move`."""
