-- What an operator asks a running daemon for, and how far it is (`jobs.py`). `outcome` is JSON.
CREATE TABLE jobs (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  kind TEXT NOT NULL CHECK (kind IN ('fix', 'reindex', 'reembed')),
  space TEXT NOT NULL,
  asked_at REAL NOT NULL,
  state TEXT NOT NULL DEFAULT 'asked' CHECK (state IN ('asked', 'running', 'done', 'failed', 'cancelled')),
  step TEXT NOT NULL DEFAULT '',
  done INTEGER NOT NULL DEFAULT 0,
  total INTEGER NOT NULL DEFAULT 0,
  outcome TEXT NOT NULL DEFAULT '{}'
) STRICT;
