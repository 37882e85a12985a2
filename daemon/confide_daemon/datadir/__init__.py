"""The daemon's data folder: paths, keys, credentials, and which process runs on it."""
