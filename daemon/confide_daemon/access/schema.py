"""The registry's tables, and the steps that bring a file of an older version to this one."""

from __future__ import annotations

import apsw

from confide_daemon.errors import StorageError

_FIRST = """
CREATE TABLE spaces (
  name TEXT PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  created_at REAL NOT NULL
) STRICT;
CREATE TABLE callers (
  public_key BLOB PRIMARY KEY CHECK (length(public_key) = 32),
  alias TEXT NOT NULL,
  space TEXT NOT NULL REFERENCES spaces (name),
  scope TEXT NOT NULL CHECK (scope IN ('read', 'write', 'admin')),
  added_by TEXT NOT NULL CHECK (added_by IN ('invite', 'line', 'file')),
  added_at REAL NOT NULL,
  revoked_at REAL
) STRICT;
CREATE UNIQUE INDEX callers_alias ON callers (alias) WHERE revoked_at IS NULL;
CREATE TABLE invites (
  invite_id BLOB PRIMARY KEY,
  psk BLOB NOT NULL,
  alias TEXT NOT NULL,
  space TEXT NOT NULL,
  scope TEXT NOT NULL CHECK (scope IN ('read', 'write', 'admin')),
  created_at REAL NOT NULL,
  expires_at REAL NOT NULL
) STRICT;
CREATE TABLE used_invites (
  invite_id BLOB PRIMARY KEY,
  psk BLOB NOT NULL,
  alias TEXT NOT NULL,
  public_key BLOB NOT NULL,
  used_at REAL NOT NULL
) STRICT;
"""

# Lists are JSON; NULL is all, never, or nobody. `successor` is a key that may take this one's place (PROTOCOL.md 7.10), and in a revoked
# row the key that has. Whoever was enrolled before approvals were known had been approved by being enrolled.
_RIGHTS = """
ALTER TABLE callers ADD COLUMN projects TEXT;
ALTER TABLE callers ADD COLUMN sources TEXT;
ALTER TABLE callers ADD COLUMN expires_at REAL;
ALTER TABLE callers ADD COLUMN approved_at REAL;
ALTER TABLE callers ADD COLUMN last_seen_at REAL;
ALTER TABLE callers ADD COLUMN successor BLOB CHECK (length(successor) = 32);
UPDATE callers SET approved_at = added_at;
CREATE UNIQUE INDEX callers_successor ON callers (successor) WHERE revoked_at IS NULL;
ALTER TABLE invites ADD COLUMN projects TEXT;
ALTER TABLE invites ADD COLUMN sources TEXT;
ALTER TABLE invites ADD COLUMN caller_expires_at REAL;
ALTER TABLE invites ADD COLUMN needs_approval INTEGER NOT NULL DEFAULT 0;
CREATE TABLE audit (
  id INTEGER PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('change', 'session', 'refusal')),
  at REAL NOT NULL,
  last_at REAL NOT NULL,
  event TEXT NOT NULL,
  caller TEXT,
  fingerprint TEXT,
  session TEXT,
  detail TEXT,
  count INTEGER NOT NULL DEFAULT 1
) STRICT;
CREATE INDEX audit_kind ON audit (kind, id);
"""

# What an operator asks a running daemon for, and how far it is (`jobs.py`). `outcome` is JSON.
_JOBS = """
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
"""

# The devices of each space, as entries that they sign (PROTOCOL.md 10.6), and the messages by which a machine comes to them (10.7).
# `invited_by` is the key of the caller that made an invite; NULL: the operator did.
_SEALING = """
CREATE TABLE roster_entries (
  space TEXT NOT NULL REFERENCES spaces (id),
  number INTEGER NOT NULL CHECK (number >= 0),
  hash BLOB NOT NULL CHECK (length(hash) = 32),
  entry BLOB NOT NULL,
  PRIMARY KEY (space, number)
) STRICT;
CREATE TABLE pairings (
  public_key BLOB PRIMARY KEY CHECK (length(public_key) = 32),
  space TEXT NOT NULL REFERENCES spaces (id),
  card BLOB NOT NULL,
  request BLOB,
  answer BLOB,
  at REAL NOT NULL
) STRICT;
CREATE INDEX pairings_space ON pairings (space, at);
ALTER TABLE invites ADD COLUMN invited_by BLOB CHECK (length(invited_by) = 32);
CREATE INDEX invites_by ON invites (invited_by) WHERE invited_by IS NOT NULL;
"""

# The same with more kinds; what was asked for before was of another run of the daemon.
_KEY_JOBS = f"DROP TABLE jobs;{_JOBS}".replace(
    "'reembed')", "'reembed', 'rekey', 'to-caller', 'to-server', 'to-vault', 'from-vault')"
)

# Credentials that a machine has seen stored in clear; no row: nobody has looked.
_UNSEALED = """
CREATE TABLE unsealed (
  space TEXT PRIMARY KEY REFERENCES spaces (id),
  findings INTEGER NOT NULL,
  seen_at REAL NOT NULL
) STRICT;
"""

STEPS = (_FIRST, _RIGHTS, _JOBS, _SEALING, _KEY_JOBS, _UNSEALED)
VERSION = len(STEPS)


def migrate(database: apsw.Connection) -> None:
    """Bring the tables to this version; call it inside a transaction, so that a step and its number are written together.

    Raises:
        StorageError: a newer version has written the file.
    """
    present = int(database.pragma("user_version"))
    if present > VERSION:
        raise StorageError(
            "cannot open the registry: it was written by a newer version of confide", hint="upgrade confide here"
        )
    for step in STEPS[present:]:
        database.execute(step)
    if present < VERSION:
        database.pragma("user_version", VERSION)
