"""Bodies of requests between the programs (PROTOCOL.md 9)."""
