"""The HTTP front end that both gateways share: `confide http serve` on a device, and `confided` on
a server (docs/http.md).

It knows no memory, no rights of tokens and no sessions, only how requests come in. `serving` holds
the socket and its timeouts; `crowd` chooses the connection to close when there are too many;
`pacing` delays requests; `guard` refuses what a page in a browser could cause; `bearer_auth` reads
bearer tokens and counts guesses; `request_limits` limits bodies and parallel requests; `refusals`
builds the error responses.

Floors: refusals < guard, bearer_auth, request_limits, crowd, pacing < serving. Only a gateway
imports this: an agent's session, a hook, and a daemon without `[gateway]` load no web server.
"""
