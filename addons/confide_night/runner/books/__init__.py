"""What this runner has begun and what it has spent, on its own disk: no daemon can make it forget."""
