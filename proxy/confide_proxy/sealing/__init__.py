"""What leaves this machine leaves it without its secrets: sealed here, with keys that the daemon never has (PROTOCOL.md 10)."""
