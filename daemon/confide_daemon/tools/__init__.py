"""The tools that an agent sees, one module per tool or related group: their wire definitions and
their code.

A tool gets the caller's space and the connection's projects through a `ToolContext`. It has no
access to sockets, keys or JSON-RPC.
"""
