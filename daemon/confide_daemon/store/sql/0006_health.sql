-- What was found wrong with the rows that are derived (and with what they are derived from), how many, when, and when it was put right.
CREATE TABLE breach (
    id        INTEGER PRIMARY KEY,
    what      TEXT    NOT NULL,              -- see store/health.py
    rows      INTEGER NOT NULL,
    found_at  REAL    NOT NULL,              -- seconds since 1970
    healed_at REAL                           -- NULL: not yet
);
CREATE UNIQUE INDEX breach_open ON breach (what) WHERE healed_at IS NULL;

-- Moments and flags of the upkeep: 'open' while a daemon has the database open, so that the next one knows of a crash; 'checked_at'.
CREATE TABLE mark (
    name  TEXT PRIMARY KEY,
    value REAL NOT NULL
) WITHOUT ROWID;

-- Of the text that the document's pieces were cut from; NULL: before this was kept.
ALTER TABLE document ADD COLUMN cut_hash TEXT;
