"""What goes between a machine and its daemon (PROTOCOL.md 9): one object a request, which both ends have, by families."""
