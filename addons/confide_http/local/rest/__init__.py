"""REST: each route is one tool call, or a request that the commands make too, and its structured content as JSON.

`route_table` is the table, and what `openapi` is made of. Paths are those of claude-memory-mcp, so that its clients can be pointed here:
`shapes` takes their words for our parameters, and gives their fields beside ours.
"""
