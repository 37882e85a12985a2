"""Code that both ends of a Confide channel share: keys, handshake, channel, enrollment, errors."""
