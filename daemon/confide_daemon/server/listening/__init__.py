"""How machines come in: the sockets, the handshakes begun on them, who may go on, and what is counted of all that."""
