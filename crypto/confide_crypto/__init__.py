"""What both ends of a Confide channel must agree on: keys, handshake, channel, enrollment, root error."""
