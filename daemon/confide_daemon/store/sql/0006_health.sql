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

-- Of what text the document's pieces were cut, and how many they were; NULL: nobody has counted.
ALTER TABLE document ADD COLUMN cut_hash TEXT;
ALTER TABLE document ADD COLUMN pieces INTEGER;
UPDATE document SET pieces = (SELECT count(*) FROM chunk c WHERE c.document = document.id) WHERE chunking IS NOT NULL;
