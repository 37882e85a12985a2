"""Storage of a space: one encrypted database, and the threads that use it."""
