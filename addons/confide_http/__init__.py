"""Memory over HTTP: `confide serve` on this machine, and `[gateway]` on the server."""
