"""The worker process beside the daemon, which copies and verifies snapshots, and its client."""
