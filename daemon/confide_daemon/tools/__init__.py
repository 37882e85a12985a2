"""The tools that an agent sees: one module a tool, holding its definition on the wire and what it does.

A tool knows the caller's space and the projects of its connection through a `ToolContext`. It knows nothing of sockets, keys or
JSON-RPC.
"""
