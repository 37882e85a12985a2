"""The commands `confide task`."""
