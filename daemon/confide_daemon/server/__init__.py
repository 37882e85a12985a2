"""The daemon's network side: sessions, the MCP server of each, and the devices' requests."""
