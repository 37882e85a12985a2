"""Definitions for the move of a space that the device and the daemon share."""
