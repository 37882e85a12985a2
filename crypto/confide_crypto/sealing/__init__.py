"""Sealed secrets: the devices of a space encrypt them for each other, and a daemon stores them but
cannot decrypt them (PROTOCOL.md 10).

The code works on bytes: it reads no files, opens no connections and uses no database. A daemon uses
the same code to check data before it stores it (`Roster.read`, `SealedRecord.parse`).
"""
