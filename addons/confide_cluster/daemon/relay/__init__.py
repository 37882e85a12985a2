"""What another node holds: the way there, and what is passed on. Loaded where `[node]` is set."""
