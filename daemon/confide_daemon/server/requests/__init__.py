"""The requests of a device (PROTOCOL.md 9 and 10), with one module per family."""
