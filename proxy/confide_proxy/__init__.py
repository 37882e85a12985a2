"""The proxy on the machine where the agent runs: the command `confide`."""
