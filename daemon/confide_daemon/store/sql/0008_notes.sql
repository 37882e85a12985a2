-- What notes say of themselves in their front matter, as rows: derived from their documents, like the pieces.

CREATE TABLE note (
    document   INTEGER PRIMARY KEY REFERENCES document (id),
    id         TEXT    NOT NULL,             -- mem_<entity>_<time>_<hash>
    project    INTEGER NOT NULL REFERENCES project (id),
    task       TEXT,                         -- the task whose folder it lies in
    title      TEXT    NOT NULL,
    type       TEXT,
    category   TEXT,
    entity     TEXT,                         -- as it is written
    entity_key TEXT,                         -- as it is compared: folded
    status     TEXT,
    source     TEXT,
    tags       TEXT    NOT NULL,             -- JSON list, as they are written
    importance REAL    NOT NULL,             -- 0 to 1
    created_at REAL    NOT NULL,             -- seconds since 1970
    updated_at REAL    NOT NULL,
    stated_at  REAL,                         -- what the file says of its last change; NULL: nothing
    digest     BLOB    NOT NULL,             -- of its text: notes that share it say the same
    problems   INTEGER NOT NULL              -- how many things in its front matter were not understood
);
CREATE UNIQUE INDEX note_id ON note (id);
CREATE INDEX note_digest ON note (digest);
CREATE INDEX note_task ON note (task) WHERE task IS NOT NULL;

CREATE TABLE note_tag (
    document INTEGER NOT NULL REFERENCES note (document),
    tag      TEXT    NOT NULL                -- folded
);
CREATE UNIQUE INDEX note_tags ON note_tag (tag, document);
CREATE INDEX note_tags_of ON note_tag (document);

-- Stated by the note `document` of the note `other`, which may not be there (yet, or any more).
CREATE TABLE note_relation (
    document INTEGER NOT NULL REFERENCES note (document),
    kind     TEXT    NOT NULL,
    other    TEXT    NOT NULL
);
CREATE UNIQUE INDEX note_relations ON note_relation (document, kind, other);
CREATE INDEX note_relations_to ON note_relation (other, kind);

-- How often a document was read, or shown among what a search found. Not derived, and nothing is lost that matters if it is.
CREATE TABLE document_use (
    document INTEGER PRIMARY KEY REFERENCES document (id),
    uses     INTEGER NOT NULL,
    used_at  REAL    NOT NULL                -- seconds since 1970
);

ALTER TABLE document ADD COLUMN words TEXT NOT NULL DEFAULT '';   -- searched beside the text: tags, keywords, entity, ...
ALTER TABLE document ADD COLUMN importance REAL;                  -- of a note; NULL: it says nothing of it

-- Those that are there already are cut again, and read as notes then; their pieces keep their vectors.
UPDATE document SET chunking = NULL WHERE NOT deleted AND (path GLOB 'memory/notes/*' OR path GLOB 'memory/tasks/*/*');
