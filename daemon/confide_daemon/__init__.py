"""The daemon that owns the index; its command is `confided`."""

__version__ = "0.3.0"
