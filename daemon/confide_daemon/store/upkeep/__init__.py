"""Maintenance of a space's database: integrity checks, repair, rewriting of texts, and replacement
of the file.
"""
