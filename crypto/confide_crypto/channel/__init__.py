"""The encrypted channel without any I/O: frames, streams with flow control, and requests
(PROTOCOL.md 6 and 7).
"""
