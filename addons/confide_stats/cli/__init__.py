"""The command `confide stats`."""
