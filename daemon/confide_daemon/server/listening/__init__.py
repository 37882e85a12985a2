"""Incoming connections: sockets, handshakes, the admission of callers, and counts of refusals."""
