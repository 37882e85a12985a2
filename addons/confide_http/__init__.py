"""Memory over HTTP: `confide http serve` on this computer, and `[gateway]` on the server."""
