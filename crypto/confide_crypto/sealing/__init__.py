"""Sealed secrets: encrypted by the devices of a space for each other, and stored by a daemon that
cannot open them (PROTOCOL.md 10).

The code works on bytes: it reads no files, opens no connections and uses no database. A daemon
checks with the same code what it is given to store (`Roster.read`, `SealedRecord.parse`).
"""
