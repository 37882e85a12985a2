"""The channel over a websocket: dialing, opening, sessions that live and end."""
