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
