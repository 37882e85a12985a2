"""The MCP server of one connection: the protocol, and what it asks: tools, resources, prompts."""
