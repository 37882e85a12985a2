"""Takes snapshots of the data folder while the daemon serves, verifies them, and removes old ones
once a newer one is verified.
"""
