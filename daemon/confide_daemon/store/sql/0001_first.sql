-- Documents are the truth; everything below "derived" can be rebuilt from them at any time.

CREATE TABLE project (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
);

CREATE TABLE document (
    id         INTEGER PRIMARY KEY,
    project    INTEGER NOT NULL REFERENCES project (id),
    path       TEXT    NOT NULL,
    revision   INTEGER NOT NULL,            -- the newest; 1 is the first
    hash       TEXT    NOT NULL,            -- of the newest text; '' for a deleted document
    deleted    INTEGER NOT NULL DEFAULT 0,
    author     TEXT    NOT NULL,
    updated_at REAL    NOT NULL,            -- seconds since 1970
    source     TEXT    NOT NULL,            -- memory, sessions
    day        TEXT    NOT NULL,            -- ISO day it is about: of its name, else of its last change
    chunking   TEXT,                        -- the settings its pieces were cut by; NULL: not cut yet
    UNIQUE (project, path)
);

-- The row id grows with every change of the space: the change sequence.
CREATE TABLE revision (
    change     INTEGER PRIMARY KEY AUTOINCREMENT,
    document   INTEGER NOT NULL REFERENCES document (id),
    number     INTEGER NOT NULL,
    hash       TEXT    NOT NULL,
    text       BLOB,                        -- zlib of UTF-8; NULL: deleted
    author     TEXT    NOT NULL,
    created_at REAL    NOT NULL,
    UNIQUE (document, number)
);

-- derived ------------------------------------------------------------------------------------------------------------

CREATE TABLE chunk (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,   -- never used again, so a late vector cannot land on another text
    document   INTEGER NOT NULL REFERENCES document (id),
    position   INTEGER NOT NULL,
    start_line INTEGER NOT NULL,
    end_line   INTEGER NOT NULL,
    heading    TEXT    NOT NULL,
    tokens     INTEGER NOT NULL,
    hash       BLOB    NOT NULL,            -- of the text: pieces that did not change keep their vectors
    text       TEXT    NOT NULL,
    added_at   REAL    NOT NULL
);
CREATE INDEX chunk_order ON chunk (document, position);
CREATE INDEX chunk_hash ON chunk (hash);

-- Contentless: the text is in `chunk` already. rowid = chunk.id.
CREATE VIRTUAL TABLE keyword USING fts5 (
    header, body, content = '', contentless_delete = 1, tokenize = 'porter unicode61'
);

-- A background of pieces that match nothing. BM25 takes a word for worthless that is in half of all rows, so in a space of three notes every
-- word would be, and nothing would ever be found; with these rows a small space scores as a part of a larger one. The word is a private-use
-- character that no text or query holds; the length is that of a usual piece.
WITH RECURSIVE background (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM background WHERE id < 256)
INSERT INTO keyword (rowid, header, body)
SELECT -id, replace(hex(zeroblob(3)), '00', char(0xF8FE) || ' '), replace(hex(zeroblob(40)), '00', char(0xF8FE) || ' ') FROM background;

-- One for each model whose vectors are held; its table is vector_<id>. Vectors of different models never share one.
CREATE TABLE generation (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    provider   TEXT    NOT NULL,
    model      TEXT    NOT NULL,
    dimensions INTEGER NOT NULL,
    state      TEXT    NOT NULL CHECK (state IN ('building', 'live')),
    created_at REAL    NOT NULL
);
CREATE UNIQUE INDEX generation_one_live ON generation (state) WHERE state = 'live';

-- Vectors of pieces that are gone (edited, deleted, or of a former model), in case they come back.
CREATE TABLE vector_cache (
    model   TEXT NOT NULL,                  -- provider/model/dimensions
    hash    BLOB NOT NULL,
    vector  BLOB NOT NULL,
    kept_at REAL NOT NULL,
    PRIMARY KEY (model, hash)
) WITHOUT ROWID;
CREATE INDEX vector_cache_age ON vector_cache (kept_at);
