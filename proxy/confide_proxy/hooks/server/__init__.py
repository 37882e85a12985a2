"""The server that answers the hooks of this device. One process runs it at a time: a session
(`confide mcp`), or `confide sync --watch`.
"""
