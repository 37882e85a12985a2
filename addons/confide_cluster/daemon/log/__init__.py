"""The log of a space in PostgreSQL: sealing, sending, replay and snapshots. Loaded if `[store] url`
is set.
"""
