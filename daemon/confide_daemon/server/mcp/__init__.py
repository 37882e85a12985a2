"""The MCP server of one connection: the SDK's loop, and what it asks: tools, resources, prompts."""
