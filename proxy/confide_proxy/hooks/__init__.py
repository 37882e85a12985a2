"""What clients tell of their sessions by hooks, and what is answered at once: a part of every turn, so it loads next to nothing."""
