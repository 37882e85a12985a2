-- Texts that a person had forgotten, as keyed hashes (PROTOCOL.md 9.11), so that none of them comes back by accident.

CREATE TABLE forget_key (
    id          BLOB PRIMARY KEY CHECK (length(id) = 8),
    key         BLOB NOT NULL CHECK (length(key) = 32),
    made_at     REAL NOT NULL                -- seconds since 1970; the oldest one is used for new records
) WITHOUT ROWID;

CREATE TABLE forget_record (
    id          BLOB PRIMARY KEY CHECK (length(id) = 16),
    author      TEXT NOT NULL,               -- the name of the device
    taken_at    REAL NOT NULL,               -- seconds since 1970
    done_at     REAL,                        -- when the last trace was removed from this file; NULL: not yet
    lifted      BLOB NOT NULL,               -- JSON list of the hashes (hex) that a person has stored again
    signature   BLOB NOT NULL,               -- of the device that had it forgotten
    record      BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE forget_seen (                   -- devices that have removed it from their own files
    record      BLOB NOT NULL,
    device      TEXT NOT NULL,               -- a device's key, hex
    at          REAL NOT NULL,
    PRIMARY KEY (record, device)
) WITHOUT ROWID;
