-- Tokens that were sent to be embedded, counted before they are sent.
CREATE TABLE embedding_use (
    month    TEXT    NOT NULL,              -- 2026-11, UTC
    provider TEXT    NOT NULL,
    model    TEXT    NOT NULL,
    tokens   INTEGER NOT NULL,              -- cl100k_base
    PRIMARY KEY (month, provider, model)
) WITHOUT ROWID;

-- Rows of 1.6 KB do not fit into the pages of an index: in a table WITHOUT ROWID each took a page of its own beside it, 4.6 KB in all.
CREATE TABLE vector_cache_rows (
    id      INTEGER PRIMARY KEY,
    model   TEXT NOT NULL,                  -- provider/model/dimensions
    hash    BLOB NOT NULL,
    vector  BLOB NOT NULL,
    kept_at REAL NOT NULL,
    UNIQUE (model, hash)
);
INSERT INTO vector_cache_rows (model, hash, vector, kept_at) SELECT model, hash, vector, kept_at FROM vector_cache ORDER BY kept_at;
DROP TABLE vector_cache;
ALTER TABLE vector_cache_rows RENAME TO vector_cache;
CREATE INDEX vector_cache_age ON vector_cache (kept_at);
