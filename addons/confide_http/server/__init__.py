"""MCP over HTTP on the server, for clients that support nothing else (docs/http-server.md). Off
unless `[gateway]` sets an address.

Encryption between devices and daemon does not cover HTTP: the client, and the proxy that ends the
TLS, read requests and results in clear. The server has none of the devices' keys, so sealed texts
stay sealed, and a locked space is answered with 503.

The protocol is the SDK's: its session manager for HTTP runs in front of the same server that a
channel has (`server/mcp/agent_server.py`). Requests come in as at every gateway
(`confide_http.door`). Our own parts: the gateway's names (`names`), tokens of the registry
(`token_callers`), the rights of a client in its space (`answering`), and sign-in (`oauth`).

Floors: access < token_callers, names < answering, oauth < gateway_service. Only `gateway_service`
is imported from outside, and only if `[gateway]` is configured: no other daemon loads a web server.
"""
