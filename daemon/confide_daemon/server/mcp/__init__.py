"""The MCP server of one connection: the protocol, and the tools, resources and prompts it offers."""
