-- Which documents hold a clash that nobody has resolved yet, how large each revision is, and which projects are searched together.
ALTER TABLE document ADD COLUMN clash INTEGER NOT NULL DEFAULT 0;     -- the newest text holds the marks of one
CREATE INDEX document_clash ON document (id) WHERE clash;
CREATE INDEX document_deleted ON document (updated_at) WHERE deleted;

ALTER TABLE revision ADD COLUMN clash INTEGER NOT NULL DEFAULT 0;
ALTER TABLE revision ADD COLUMN bytes INTEGER;                        -- of the text; NULL: not counted then, or deleted

-- Each pair once, the smaller id first.
CREATE TABLE project_link (
    one     INTEGER NOT NULL REFERENCES project (id),
    other   INTEGER NOT NULL REFERENCES project (id),
    made_at REAL    NOT NULL,                                         -- seconds since 1970
    PRIMARY KEY (one, other),
    CHECK (one < other)
) WITHOUT ROWID;
