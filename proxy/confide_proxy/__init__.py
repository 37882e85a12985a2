"""The proxy, which runs on the same device as the agent: the command `confide`."""

VERSION = "0.3.0"
"""The proxy's version, as sent to the daemon and shown to users."""
