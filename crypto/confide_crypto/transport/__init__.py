"""The channel over a websocket: connecting, the handshake, running and closing a session."""
