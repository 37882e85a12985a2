"""MCP over HTTP on the server, for clients that speak nothing else (docs/http-server.md). Off unless `[gateway]` says where to listen.

End to end ends where HTTP begins: whoever is let in here, and whoever ends the TLS, reads in clear what was asked and found. None of the
machines' keys is here, so what is sealed stays sealed, and a locked space is answered with 503.

The protocol is the SDK's: its session manager for HTTP stands in front of the very server that a channel has
(`server/mcp/agent_server.py`). The door is that of every gateway (`confide_http.door`). What is ours: how it is called
(`names`), tokens of the registry (`token_callers`), what a client may do in its space (`answering`), and how a program signs
in (`oauth`).

Floors: access < token_callers, names < answering, oauth < gateway_service. Only `gateway_service` is imported from outside, and only where
`[gateway]` is configured: no other daemon loads a web server.
"""
