"""Work without the daemon: search local files, queue calls that write, and send them later."""
