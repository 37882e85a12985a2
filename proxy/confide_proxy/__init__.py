"""The proxy on the machine where the agent runs: the command `confide`."""

VERSION = "0.3.0"
"""As it is told to the daemon and to people."""
