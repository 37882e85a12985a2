"""The commands `confided backup` and `confided restore`."""
