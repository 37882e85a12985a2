"""Watched folders whose changed files are sent to the daemon: by file events, or by polling where
the system provides none.
"""
