"""Access by HTTP (docs/http-server.md): `server_tokens` that the operator creates, `applications`
that may request access, and their `sign_ins`.
"""
