"""Sealed secrets: what the machines of a space share among themselves and a daemon only keeps (PROTOCOL.md 10).

Bytes in, bytes out: nothing here reads a file, opens a connection or knows a database. A daemon uses the same code to check
what it is given to keep (`Roster.read`, `Record.parse`); it lacks the keys to open any of it.
"""
