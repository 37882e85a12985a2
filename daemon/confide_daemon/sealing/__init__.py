"""Sealed secrets in the daemon. Devices encrypt ("seal") and sign them; the daemon stores and
serves them, and cannot open any (PROTOCOL.md 10).

It verifies each entry of a roster, the signed list of a space's devices, and the form of each
record.
"""
