-- The files of the daemon's own key (`datadir/daemon_keys.py`), where several nodes are one daemon; empty elsewhere.
CREATE TABLE daemon_keys (
  name TEXT PRIMARY KEY CHECK (name IN ('identity.key', 'rotation.json', 'identity.previous.key')),
  content BLOB NOT NULL
) STRICT;
-- Spaces that were removed, so that nodes which have a copy of one know it for that, and not for one that a store has lost.
CREATE TABLE removed_spaces (
  id TEXT PRIMARY KEY,
  at REAL NOT NULL
) STRICT;
