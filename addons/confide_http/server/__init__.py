"""MCP over HTTP on the server, for clients that support nothing else (docs/http-server.md). Off
unless `[gateway]` sets an address.

Encryption between devices and daemon does not cover HTTP: the client, and the reverse proxy that
ends TLS, read requests and results in clear. The server has none of the devices' keys, so sealed
texts stay sealed, and a request for a locked space is answered with 503.

The SDK implements the protocol: its session manager for HTTP runs in front of the same server
object that a device's connection has (`server/mcp/agent_server.py`). Requests arrive as at every
gateway (`confide_http.door`). This package adds the gateway's names (`names`), tokens of the
registry (`token_callers`), the rights of a client in its space (`answering`), and sign-in
(`oauth`).

Layers, lowest first: access < token_callers, names < answering, oauth < gateway_service. Only
`gateway_service` is imported from outside, and only if `[gateway]` is configured, so no other
daemon loads a web server.
"""
