"""Takes snapshots of the data folder while the daemon serves, verifies them, and removes old ones
when newer ones are proven.
"""
