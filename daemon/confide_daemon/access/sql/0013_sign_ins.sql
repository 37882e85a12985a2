-- Programs that may ask to be let in by OAuth (docs/http-server.md), and how far each sign-in is. Secrets, ids of requests, words, codes and tokens
-- are kept as their SHA-256. What is granted is a caller, like every other one: `family` is its `public_key`, which here is no hash of anything.
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
-- While this has a row, programs may register themselves for that space.
CREATE TABLE registration (
  space TEXT PRIMARY KEY REFERENCES spaces (name),
  until REAL NOT NULL
) STRICT;
-- `granted` is JSON, once a device has approved it; `used_at` of a code is when `family` came by it.
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
) STRICT;
CREATE TABLE tokens (
  digest BLOB PRIMARY KEY CHECK (length(digest) = 32),
  kind TEXT NOT NULL CHECK (kind IN ('access', 'refresh')),
  family BLOB NOT NULL CHECK (length(family) = 32),
  application TEXT NOT NULL,
  resource TEXT NOT NULL,
  expires_at REAL NOT NULL,
  used_at REAL
) STRICT;
CREATE INDEX tokens_family ON tokens (family);
