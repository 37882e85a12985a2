-- All steps up to 15, in one: what a new database is made of. Write a step and `make schema`; do not edit it.


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
, projects TEXT, sources TEXT, expires_at REAL, approved_at REAL, last_seen_at REAL, successor BLOB CHECK (length(successor) = 32), invited_by BLOB CHECK (length(invited_by) = 32), proxy_version TEXT, gateway TEXT CHECK (gateway IN ('trusted', 'untrusted'))) STRICT;

CREATE UNIQUE INDEX callers_alias ON callers (alias) WHERE revoked_at IS NULL;

CREATE TABLE invites (
  invite_id BLOB PRIMARY KEY,
  psk BLOB NOT NULL,
  alias TEXT NOT NULL,
  space TEXT NOT NULL,
  scope TEXT NOT NULL CHECK (scope IN ('read', 'write', 'admin')),
  created_at REAL NOT NULL,
  expires_at REAL NOT NULL
, projects TEXT, sources TEXT, caller_expires_at REAL, needs_approval INTEGER NOT NULL DEFAULT 0, invited_by BLOB CHECK (length(invited_by) = 32)) STRICT;

CREATE TABLE used_invites (
  invite_id BLOB PRIMARY KEY,
  psk BLOB NOT NULL,
  alias TEXT NOT NULL,
  public_key BLOB NOT NULL,
  used_at REAL NOT NULL
) STRICT;

CREATE UNIQUE INDEX callers_successor ON callers (successor) WHERE revoked_at IS NULL;

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
, actor BLOB CHECK (length(actor) = 32)) STRICT;

CREATE INDEX audit_kind ON audit (kind, id);

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

CREATE INDEX invites_by ON invites (invited_by) WHERE invited_by IS NOT NULL;

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

CREATE TABLE unsealed (
  space TEXT PRIMARY KEY REFERENCES spaces (id),
  findings INTEGER NOT NULL,
  seen_at REAL NOT NULL
) STRICT;

CREATE INDEX callers_invited ON callers (invited_by) WHERE invited_by IS NOT NULL;

CREATE INDEX audit_actor ON audit (kind, actor, id) WHERE actor IS NOT NULL;

CREATE TABLE audit_counts (
  kind TEXT NOT NULL,
  actor BLOB NOT NULL,
  rows INTEGER NOT NULL,
  PRIMARY KEY (kind, actor)
) STRICT, WITHOUT ROWID;

CREATE INDEX audit_counts_rows ON audit_counts (kind, rows);

CREATE TABLE migration (
  at REAL NOT NULL,
  program TEXT NOT NULL,
  registry INTEGER NOT NULL,
  spaces INTEGER NOT NULL,
  snapshot TEXT
) STRICT;

CREATE TABLE caller_changes (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  public_key BLOB NOT NULL
) STRICT;

CREATE TRIGGER caller_added AFTER INSERT ON callers BEGIN
  INSERT INTO caller_changes (public_key) VALUES (new.public_key);
  DELETE FROM caller_changes WHERE id <= last_insert_rowid() - 4096;
END;

CREATE TRIGGER caller_removed AFTER DELETE ON callers BEGIN
  INSERT INTO caller_changes (public_key) VALUES (old.public_key);
  DELETE FROM caller_changes WHERE id <= last_insert_rowid() - 4096;
END;

CREATE TRIGGER caller_changed
AFTER UPDATE OF alias, space, scope, projects, sources, approved_at, expires_at, revoked_at, successor ON callers BEGIN
  INSERT INTO caller_changes (public_key) VALUES (new.public_key);
  DELETE FROM caller_changes WHERE id <= last_insert_rowid() - 4096;
END;

CREATE TABLE applications (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  space TEXT NOT NULL REFERENCES spaces (name),
  redirects TEXT NOT NULL,
  secret BLOB CHECK (length(secret) = 32),
  method TEXT NOT NULL CHECK (method IN ('none', 'client_secret_post', 'client_secret_basic')),
  is_registered INTEGER NOT NULL,
  added_at REAL NOT NULL
) STRICT;

CREATE TABLE registration (
  space TEXT PRIMARY KEY REFERENCES spaces (name),
  until REAL NOT NULL
) STRICT;

CREATE TABLE sign_ins (
  digest BLOB PRIMARY KEY CHECK (length(digest) = 32),
  words BLOB NOT NULL UNIQUE CHECK (length(words) = 32),
  application TEXT NOT NULL REFERENCES applications (id),
  asked TEXT NOT NULL,
  granted TEXT,
  expires_at REAL NOT NULL
) STRICT;

CREATE TABLE codes (
  digest BLOB PRIMARY KEY CHECK (length(digest) = 32),
  application TEXT NOT NULL,
  asked TEXT NOT NULL,
  granted TEXT NOT NULL,
  expires_at REAL NOT NULL,
  family BLOB
, salt BLOB CHECK (length(salt) = 32)) STRICT;

CREATE TABLE tokens (
  digest BLOB PRIMARY KEY CHECK (length(digest) = 32),
  kind TEXT NOT NULL CHECK (kind IN ('access', 'refresh')),
  family BLOB NOT NULL CHECK (length(family) = 32),
  application TEXT NOT NULL,
  resource TEXT NOT NULL,
  expires_at REAL NOT NULL,
  used_at REAL
, salt BLOB CHECK (length(salt) = 32)) STRICT;

CREATE INDEX tokens_family ON tokens (family);

CREATE TABLE daemon_keys (
  name TEXT PRIMARY KEY CHECK (name IN ('identity.key', 'rotation.json', 'identity.previous.key')),
  content BLOB NOT NULL
) STRICT;

CREATE TABLE removed_spaces (
  id TEXT PRIMARY KEY,
  at REAL NOT NULL
) STRICT;
