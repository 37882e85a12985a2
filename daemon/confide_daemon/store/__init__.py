"""Where a space is kept: one encrypted database, and the threads that use it."""
