"""OAuth 2.1 sign-in for clients in a cloud, which support nothing else (docs/http-server.md).

The SDK handles the requests, and the registry has the data (`provider`, over `server/access`).
Before them, `routes` checks what the SDK leaves open: exact redirect addresses, the audience (RFC
8707), the issuer (`iss`, RFC 9207), sizes, times and guesses. There are no passwords. A page
(`consent`) shows six words, and a device of the space approves them.

A program that describes itself at a URL (`client_metadata`) is accepted only from hosts that the
operator has listed.

Layers, lowest first: consent, client_metadata, provider < routes.
"""
