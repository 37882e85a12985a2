"""What nodes state of each other in a handshake."""
