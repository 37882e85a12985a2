"""Sealing of the texts that leave this device, with keys that the daemon never has (PROTOCOL.md
10).
"""
