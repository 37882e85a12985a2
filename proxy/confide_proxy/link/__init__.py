"""The link to the daemon: which daemon it is, this device's key, connecting, and starting a daemon
on demand.
"""
