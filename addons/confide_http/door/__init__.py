"""The HTTP front end that both gateways share: `confide http serve` on a device, and `confided` on
a server (docs/http.md).

It handles only how requests arrive; it does not know the memory, the rights of tokens or sessions.
`serving` holds the socket and its timeouts; `crowd` chooses the connection to close when there are
too many; `pacing` delays requests; `guard` refuses requests that a web page in a browser could
cause; `bearer_auth` reads bearer tokens and counts wrong ones; `request_limits` limits bodies and
parallel requests; `refusals` builds the error responses.

Layers, lowest first: refusals < guard, bearer_auth, request_limits, crowd, pacing < serving. Only a
gateway imports this package. An agent's session, a hook, and a daemon without `[gateway]` load no
web server.
"""
