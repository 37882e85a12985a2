"""Requests are answered: those of a client, by its tools, and those for a space that another node holds, there."""
