"""Reads the memories of other systems and markdown files on this device as records, which the
daemon stores as notes.
"""
