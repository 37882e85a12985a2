"""This proxy's version, as it is told to the daemon and to people."""

VERSION = "0.1.0"
