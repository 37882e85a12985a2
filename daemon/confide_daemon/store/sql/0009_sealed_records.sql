-- Secrets that the machines of the space have sealed, by the names that stand in the texts. Not derived: nobody here can make one again.
CREATE TABLE sealed_record (
    number    INTEGER PRIMARY KEY AUTOINCREMENT,
    id        BLOB    NOT NULL CHECK (length(id) = 16),
    kind      TEXT    NOT NULL,              -- as it stands in the record
    epoch     INTEGER NOT NULL,              -- as it stands in the record
    stored_at REAL    NOT NULL,              -- seconds since 1970
    record    BLOB    NOT NULL               -- PROTOCOL.md 10.3; the last column, since most questions are about the others
);
CREATE UNIQUE INDEX sealed_record_id ON sealed_record (id);
-- Lists are read from this alone.
CREATE INDEX sealed_record_listed ON sealed_record (id, epoch, kind, stored_at);
