"""What comes with a night: when one is due, which snapshots it lets go, and the operator's programs that are run with it."""
