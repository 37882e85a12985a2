"""The daemon's data folder: paths, keys, credentials, and the lock of the process that serves it."""
