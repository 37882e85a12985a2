"""Credentials in what is about to leave this machine: where they are, and what the user's policy says of each.

Nothing in here keeps, prints or logs a value: a `Finding` says where in a text it stands, and no more.
"""
