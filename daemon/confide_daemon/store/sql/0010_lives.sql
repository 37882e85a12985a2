-- What tells that the data folder was put back from an older copy (PROTOCOL.md 9.2): each opening of the database is a life of its own, and
-- knows with which change it began. What machines were told in a life that is not here, or of a change behind its end, was forgotten.
CREATE TABLE life (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    id       BLOB    NOT NULL CHECK (length(id) = 16),   -- random
    change   INTEGER NOT NULL,               -- how many changes there were when it began
    last_at  REAL    NOT NULL,               -- when the last of them was made, in seconds since 1970; of none: when it began
    restores INTEGER NOT NULL,               -- how often it was found that the folder was put back; revisions are numbered above a million of each
    back_to  REAL                            -- when the last change was made that was not forgotten the last time; NULL: it never was
);
CREATE UNIQUE INDEX life_id ON life (id);

-- Seals what machines are told of it. Never changed, so that every copy opens what was sealed since it was taken.
CREATE TABLE receipt_key (
    key BLOB NOT NULL CHECK (length(key) = 32)
);
