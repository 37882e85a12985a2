"""`confide mcp`: the MCP server that an agent's client starts. It sends calls to the daemon, or
answers them locally.
"""
