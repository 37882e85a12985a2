"""A registry against one of another time: of an older version (`upgrades`), or of a store that was put back (`rollback`)."""
