"""The daemon's network side: sessions, the MCP server of each session, and the requests of devices."""
