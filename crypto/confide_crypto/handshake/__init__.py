"""Authentication of both ends: Noise with ML-KEM, invites, and statements of new keys (PROTOCOL.md
3 to 5).
"""
