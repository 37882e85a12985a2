"""Reads memories of other tools and markdown files on this device as records, which the daemon
stores as notes.
"""
