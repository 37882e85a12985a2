"""The statements that nodes make about each other in a handshake."""
