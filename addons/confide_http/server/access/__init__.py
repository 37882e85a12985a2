"""Whoever comes by HTTP (docs/gateway.md): `tokens` that the operator makes, `applications` that may ask, and their `sign_in`."""
