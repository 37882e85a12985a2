"""Whoever comes by HTTP (docs/http-server.md): `server_tokens` that the operator makes, `applications` that may ask,
and their `sign_ins`."""
