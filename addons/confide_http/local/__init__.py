"""`confide http serve`: MCP and REST over HTTP on this device, for programs without stdio.
docs/http.md is for users.

Encryption between device and daemon does not cover HTTP: a program with a token reads in clear what
the token may access. So the gateway listens on loopback alone, refuses what a browser's page could
cause (`confide_http.door`), authenticates by tokens of this device (`local_tokens`,
`request_identity`), and uses one session with the daemon for all programs (`upstream`). That
session is the one of `confide mcp`, with its tunnel, offline answers, journal and sealing.

A group of routes is a function from `GatewayShared` to a `RouteGroup`, listed in
`gateway_server.ROUTE_GROUPS` or in `Addon.rooms`:

    def routes(gateway: GatewayShared) -> RouteGroup:
        async def projects(request: Request) -> Response:
            identity = identity_of(request)                     # scopes, projects, class
            found = await gateway.calls.tool(identity, "memory_list", {"limit": 5})
            return JSONResponse(found)

        return RouteGroup([Route("/api/some", projects, methods=["GET"])], gateway.by_token)

`admit` is `gateway.by_token`, or a function of the group's own from a request to a
`RequestIdentity` (by a cookie, for example, with `is_of_token=False`), or None if the responses are
public. A `RefusalError` or any `ConfideError` that a route raises becomes `{"error": {"code",
"message", "hint"}}` with its status. `request_limits.body_of` reads a body. An endless response is
an `EventStreamResponse`, which takes a place and ends with its identity. Requests to the daemon
other than tool calls use `gateway.calls.link`; the route must check `identity.require` and
`require_project` first.

Floors: local_tokens < request_identity, daemon_failures < upstream < calls < gateway_app < the
groups (`health`, …) < gateway_server.
"""
