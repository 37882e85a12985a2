"""Watch folders and send their changed files to the daemon: by file events, or by polling if the
system provides none.
"""
