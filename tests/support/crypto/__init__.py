"""Two ends of a channel, handshakes with fixed numbers, and the makers of the frozen vectors."""
