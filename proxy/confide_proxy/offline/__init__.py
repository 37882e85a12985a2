"""Work without the daemon: local search, the queue of writes, and its replay."""
