"""A database kept whole: checked, repaired, rewritten, given a new key."""
