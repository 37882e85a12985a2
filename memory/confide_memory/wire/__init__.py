"""Requests between a device and its daemon (PROTOCOL.md 9). Each is one `Operation`, which both
ends use.
"""
