"""Tool calls, for both programs: their arguments, their results, and the keys of MCP's `_meta`."""
