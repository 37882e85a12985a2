"""The proxy on the machine where the agent runs: the command `confide`."""

VERSION = "0.3.0"
"""The version, as the daemon and users see it."""
