"""The commands of both gateways: serving, tokens, programs that have signed in."""
