"""Snapshots of the data folder: taken while the daemon serves, proven by being opened and asked, and let go when newer ones are proven."""
