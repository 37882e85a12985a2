"""Who keeps the key of a space's database: the server, or the machines of the space (PROTOCOL.md 10.9)."""
