-- Credentials that a machine has seen stored in clear; no row: nobody has looked.
CREATE TABLE unsealed (
  space TEXT PRIMARY KEY REFERENCES spaces (id),
  findings INTEGER NOT NULL,
  seen_at REAL NOT NULL
) STRICT;
