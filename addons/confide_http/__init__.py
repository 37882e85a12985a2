"""Memory over HTTP: `confide http serve` on this machine, and `[gateway]` on the server."""
