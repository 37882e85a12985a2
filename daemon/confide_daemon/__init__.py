"""The daemon that owns the index: the command `confided`."""

__version__ = "0.2.0.dev0"
