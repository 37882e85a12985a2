"""The daemon of Confide, which stores and indexes the memory. Its command is `confided`."""

__version__ = "0.3.0"
