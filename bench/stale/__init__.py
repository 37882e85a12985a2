"""Notes about code that changes: which of them are shown as true."""
