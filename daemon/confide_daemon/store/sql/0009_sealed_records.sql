-- Secrets that the machines of the space have sealed, by the names that stand in the texts. Not derived: nobody here can make one again.
CREATE TABLE sealed_record (
    number    INTEGER PRIMARY KEY AUTOINCREMENT,
    id        BLOB    NOT NULL CHECK (length(id) = 16),
    kind      TEXT    NOT NULL,              -- as it stands in the record
    epoch     INTEGER NOT NULL,              -- as it stands in the record
    stored_at REAL    NOT NULL,              -- seconds since 1970
    place     BLOB    CHECK (length(place) = 32), -- where a vault has the record; NULL where it is here
    record    BLOB,                          -- PROTOCOL.md 10.3; the last column, since most questions are about the others
    CHECK ((place IS NULL) <> (record IS NULL))
);
CREATE UNIQUE INDEX sealed_record_id ON sealed_record (id);
-- Lists are read from this alone.
CREATE INDEX sealed_record_listed ON sealed_record (id, epoch, kind, stored_at);
CREATE INDEX sealed_record_place ON sealed_record (place, number);
-- Places in a vault that no record is at, as far as this database knows: one is about to be written, or one was there.
CREATE TABLE sealed_stray (
    place     BLOB    PRIMARY KEY,
    id        BLOB    NOT NULL,              -- of the record
    due_at    REAL    NOT NULL               -- seconds since 1970: from then on it may be emptied
) WITHOUT ROWID;
