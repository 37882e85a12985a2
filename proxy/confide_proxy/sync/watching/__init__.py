"""Folders whose files are watched, and sent as they change: events of the system, or a look now and then where there are none."""
