"""The MCP server of one connection: the protocol, its tools, resources and prompts."""
