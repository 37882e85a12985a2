"""Incoming connections: sockets, handshakes, admission of callers, and counts of refusals."""
