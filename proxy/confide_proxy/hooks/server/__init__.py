"""The server for this device's hooks: one session, or `confide sync --watch`, while it holds the
seat.
"""
