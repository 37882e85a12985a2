"""Several daemons over one PostgreSQL: the log of each space, who holds it, and sessions that are passed on."""
