"""A whole space is carried from one daemon to another (PROTOCOL.md 9.8)."""
