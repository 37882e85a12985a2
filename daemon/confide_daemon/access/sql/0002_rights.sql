-- Lists are JSON; NULL is all, never, or nobody. `successor` is a key that may take this one's place (PROTOCOL.md 7.10), and in a revoked
-- row the key that has. Whoever was enrolled before approvals were known had been approved by being enrolled.
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
