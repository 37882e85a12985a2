"""The commands `confide learn`."""
