"""The link to the daemon: which daemon this device uses, the device's key, connecting, and starting
a daemon when it is needed.
"""
