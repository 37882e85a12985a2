"""Moves a whole space from one daemon to another, with every secret, file and revision."""
