"""Maintenance of a database: integrity checks, repair, rewriting of texts, and replacement of the
file.
"""
