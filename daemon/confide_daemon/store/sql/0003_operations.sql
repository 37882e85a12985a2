-- Which changes that a machine asked for under an id of its own were made, so that one that is asked for again is not made twice.
-- A row is committed with the change itself.
CREATE TABLE operation (
    id       TEXT PRIMARY KEY,               -- 32 hex digits, made by the machine
    asked    TEXT NOT NULL,                  -- a hash of what was asked under it
    revision INTEGER NOT NULL,               -- what it came to
    hash     TEXT NOT NULL,
    previous TEXT,                           -- the hash of the document before; NULL: there was none
    lines    INTEGER NOT NULL,
    done_at  REAL NOT NULL                   -- seconds since 1970
) WITHOUT ROWID;
CREATE INDEX operation_age ON operation (done_at);
