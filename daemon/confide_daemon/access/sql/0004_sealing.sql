-- The devices of each space, as entries that they sign (PROTOCOL.md 10.6), and the messages by which a machine comes to them (10.7).
-- `invited_by` is the key of the caller that made an invite; NULL: the operator did.
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
