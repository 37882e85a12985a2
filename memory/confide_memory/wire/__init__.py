"""Requests between a device and its daemon (PROTOCOL.md 9): one `Operation` each, shared by both
ends.
"""
