"""What both programs know of a tool: its arguments, its result and the keys of `_meta`."""
