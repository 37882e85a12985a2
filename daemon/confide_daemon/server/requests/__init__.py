"""A machine's requests (PROTOCOL.md 9 and 10), one module a family."""
