"""A space goes to another daemon, with all that it holds."""
