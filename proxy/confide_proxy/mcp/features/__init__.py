"""Features of MCP beside calls: subscriptions to resources, handles for long calls, and approvals."""
