"""A registry compared with an earlier state: an older version of Confide (`upgrades`), or a store
that was restored (`rollback`).
"""
