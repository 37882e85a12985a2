"""Signing in by OAuth 2.1, for clients in a cloud, which have nothing else (docs/http-server.md).

The handlers are the SDK's; what they ask is answered from the registry (`provider`, over `server/access`). Before them stands what they
leave to others (`routes`): addresses compared to the letter, the audience (RFC 8707), who answers (`iss`, RFC 9207), sizes, times and
guesses. Nobody signs in with a password: a page (`consent`) shows six words, and a device of the space approves them.

A program that describes itself at an address (`client_metadata`) is believed only from hosts that the operator has listed.

Floors: consent, client_metadata, provider < routes.
"""
