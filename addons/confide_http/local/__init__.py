"""`confide http serve`: MCP and REST over HTTP on this machine, for programs that speak no stdio. docs/http.md is for people.

End to end ends where HTTP begins: who is let in here reads in clear what its token reaches. So this listens on loopback alone, refuses what
a browser's page could cause (`confide_http.door`), lets in by tokens of this machine (`local_tokens`,
`request_identity`), and gives all of them
one session with the daemon (`upstream`), which is that of `confide mcp`: its tunnel, offline answers, journal and sealing.

A group of routes is a function of the `GatewayShared` that gives a `RouteGroup`, and stands in
`gateway_server.ROUTE_GROUPS` or in `Addon.rooms`:

    def routes(gateway: GatewayShared) -> RouteGroup:
        async def projects(request: Request) -> Response:
            identity = identity_of(request)                     # who asks: scopes, projects, class
            found = await gateway.calls.tool(identity, "memory_list", {"limit": 5})
            return JSONResponse(found)

        return RouteGroup([Route("/api/some", projects, methods=["GET"])], gateway.by_token)

`admit` is `gateway.by_token`, or a function of the group's own from a request to an `Identity` (a cookie's, say, with `is_of_token=False`),
or None where everybody may see what is answered. What a route raises as `RefusalError`, or any `ConfideError`, becomes
`{"error": {"code", "message", "hint"}}` with its status. A body is read by `limits.body_of`. A stream is
a `Stream`, which takes a place and ends with its identity. Requests of the daemon that are no tools go over
`gateway.calls.link`; who makes them asks `identity.require` and `require_project` first.

Floors: local_tokens < request_identity, daemon_failures < upstream < calls < gateway_app < the groups (`health`, …) < gateway_server.
"""
