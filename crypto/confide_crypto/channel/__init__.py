"""The open channel without any I/O: frames, streams with credit, requests (PROTOCOL.md 6 and 7)."""
