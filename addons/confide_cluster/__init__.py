"""Several daemons over one PostgreSQL: the log of each space, its lease, and forwarding of
sessions.
"""
