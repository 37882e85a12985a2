"""The device's side of a move (PROTOCOL.md 9.8)."""
