"""The daemon on the network: sessions, the MCP server in each, and the machines' requests."""
