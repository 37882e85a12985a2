"""REST: each route is a tool call, or a request that the CLI uses as well, with its structured
content as JSON.

`route_table` holds the table, from which `openapi` is generated. Paths are those of
claude-memory-mcp, so that its clients can be pointed here: `shapes` maps their parameters to ours,
and adds their fields to ours.
"""
