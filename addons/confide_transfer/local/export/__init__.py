"""Exports a space to a folder of files, and restores it from that."""
