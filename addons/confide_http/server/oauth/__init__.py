"""OAuth 2.1 sign-in for clients in a cloud, which support nothing else (docs/http-server.md).

The handlers are the SDK's; the registry answers them (`provider`, over `server/access`). Before
them, `routes` checks what they leave open: exact redirect addresses, the audience (RFC 8707), the
issuer (`iss`, RFC 9207), sizes, times and guesses. There are no passwords: a page (`consent`) shows
six words, and a device of the space approves them.

A program that describes itself at a URL (`client_metadata`) is accepted only from hosts that the
operator has listed.

Floors: consent, client_metadata, provider < routes.
"""
