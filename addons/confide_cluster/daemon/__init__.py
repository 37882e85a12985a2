"""The daemon's half, which is all but the statements."""
