"""Snapshots of a daemon's data folder: taken while it serves, proven, restored, and let go."""
