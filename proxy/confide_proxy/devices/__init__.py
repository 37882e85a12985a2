"""The devices of a space: roster, keys, pairing and removal (PROTOCOL.md 10)."""
