"""The HTTP entry that both gateways share: `confide http serve` on a device, and `confided` on a server (docs/http.md).

It knows no memory, no token's rights and no session: what is alike is how a request comes in. `serving` is the socket, and how long it
waits for whom; `crowd` knows who makes room, and `pacing` who has to wait; `guard` refuses what a page in a browser could cause;
`bearer_auth` reads a bearer token and counts guesses; `request_limits` bounds bodies and places; `refusals` is
the answer to all that is not let in.

Floors: refusals < guard, bearer_auth, request_limits, crowd, pacing < serving. Nothing but a gateway imports
this: an agent's session, a hook, and a
daemon without `[gateway]` load no web server.
"""
