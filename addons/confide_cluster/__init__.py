"""The add-on for several daemons over one PostgreSQL: it stores the log of each space there,
decides which daemon writes to a space, and forwards sessions to that daemon.
"""
