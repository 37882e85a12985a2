"""The messages of a handshake between two nodes."""
