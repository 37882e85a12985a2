"""Sealed secrets, as far as a daemon has to do with them: it stores and serves what devices have signed and sealed (PROTOCOL.md 10).

It verifies every entry of a roster and the form of every record, and can open nothing.
"""
