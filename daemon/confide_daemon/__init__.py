"""The daemon that owns the index: the command `confided`."""
