"""The log of a space in PostgreSQL: encryption, upload, replay and snapshots. Loaded only if
`[store] url` is set.
"""
