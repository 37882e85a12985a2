"""Features of MCP beside calls: subscriptions to resources, and handles for calls that take long."""
