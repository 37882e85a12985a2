"""The page that an agent's client shows beside results, by MCP's extension for apps."""
