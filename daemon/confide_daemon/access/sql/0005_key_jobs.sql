-- The same with more kinds; what was asked for before was of another run of the daemon.
DROP TABLE jobs;
CREATE TABLE jobs (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  kind TEXT NOT NULL CHECK (kind IN ('fix', 'reindex', 'reembed', 'rekey', 'to-caller', 'to-server', 'to-vault', 'from-vault')),
  space TEXT NOT NULL,
  asked_at REAL NOT NULL,
  state TEXT NOT NULL DEFAULT 'asked' CHECK (state IN ('asked', 'running', 'done', 'failed', 'cancelled')),
  step TEXT NOT NULL DEFAULT '',
  done INTEGER NOT NULL DEFAULT 0,
  total INTEGER NOT NULL DEFAULT 0,
  outcome TEXT NOT NULL DEFAULT '{}'
) STRICT;
