-- The files of the daemon's own key (`datadir/identity.py`), where several nodes are one daemon; empty elsewhere.
CREATE TABLE daemon_keys (
  name TEXT PRIMARY KEY CHECK (name IN ('identity.key', 'rotation.json', 'identity.previous.key')),
  content BLOB NOT NULL
) STRICT;
