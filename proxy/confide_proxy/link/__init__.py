"""The way to the daemon: which one it is, this machine's key, dialing, and a daemon started on demand."""
