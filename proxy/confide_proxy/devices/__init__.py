"""The devices of a space: the roster that lists them, their keys, pairing, and removal (PROTOCOL.md
10).
"""
