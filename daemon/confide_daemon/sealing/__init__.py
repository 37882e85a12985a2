"""Sealed secrets in the daemon: it stores and serves what devices have signed and sealed
(PROTOCOL.md 10).

It verifies every entry of a roster and the form of every record, and cannot open any.
"""
