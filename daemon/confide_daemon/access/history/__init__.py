"""Compares the registry with an earlier state: written by an older version of Confide (`upgrades`),
or restored in the shared store (`rollback`).
"""
