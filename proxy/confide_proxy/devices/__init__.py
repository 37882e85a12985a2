"""The machines of a space: its roster, its keys, pairing and removal (PROTOCOL.md 10)."""
