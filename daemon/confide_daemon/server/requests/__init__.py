"""The requests of a device (PROTOCOL.md 9 and 10), one module for each family."""
