"""Authentication of both ends: the Noise handshake with ML-KEM, invites, and the replacement of
keys (PROTOCOL.md 3 to 5).
"""
