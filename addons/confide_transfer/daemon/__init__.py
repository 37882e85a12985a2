"""The daemon's half of imports: many notes in one request."""
