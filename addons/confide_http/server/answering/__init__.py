"""Requests are answered: those of a client, by its tools, and those that another node passes on."""
