"""The daemon that owns the index: the command `confided`."""

__version__ = "0.3.0"
