"""Tasks for the night: what is ordered, when it is due, who runs it, and what came of it."""
