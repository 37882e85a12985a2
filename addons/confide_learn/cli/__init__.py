"""The commands `confide learn` and `confide learned`."""
