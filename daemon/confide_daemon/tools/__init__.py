"""The tools that an agent sees, one module for each tool or group of related tools: their wire
definitions and their code.

A tool receives the caller's space and the connection's projects in a `ToolContext`. It has no
access to sockets, keys or JSON-RPC.
"""
