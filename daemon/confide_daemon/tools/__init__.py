"""The tools that an agent sees, one module a tool or a few that go together: their definitions on the wire and what they do.

A tool knows the caller's space and the projects of its connection through a `ToolContext`. It knows nothing of sockets, keys or
JSON-RPC.
"""
