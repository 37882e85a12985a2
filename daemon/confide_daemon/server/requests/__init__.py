"""One module for each family of a machine's requests (PROTOCOL.md 9 and 10)."""
