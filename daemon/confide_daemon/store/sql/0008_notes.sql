-- What notes say of themselves in their front matter, as rows: derived from their documents, like the pieces.

CREATE TABLE note (
    document   INTEGER PRIMARY KEY REFERENCES document (id),
    id         TEXT    NOT NULL,             -- mem_<entity>_<time>_<hash>
    claimed    TEXT,                         -- the id that it would have, were it not another note's; NULL: it has it
    project    INTEGER NOT NULL REFERENCES project (id),
    path       TEXT    NOT NULL,             -- of its document
    task       TEXT,                         -- the task whose folder it lies in
    title      TEXT    NOT NULL,
    type       TEXT,
    category   TEXT,
    entity     TEXT,                         -- as it is written
    entity_key TEXT,                         -- as it is compared: folded
    status     TEXT,
    source     TEXT,
    tags       TEXT    NOT NULL,             -- JSON list, as they are written
    tag_keys   TEXT    NOT NULL,             -- folded, each between two line ends; '' without any
    importance REAL    NOT NULL,             -- 0 to 1
    created_at REAL    NOT NULL,             -- seconds since 1970
    updated_at REAL    NOT NULL,
    stated_at  REAL,                         -- what the file says of its last change; NULL: nothing
    digest     BLOB    NOT NULL,             -- of its text: notes that share it say the same
    problems   INTEGER NOT NULL,             -- how many things in its front matter were not understood
    parts      INTEGER NOT NULL,             -- rows that it has in note_tag and note_relation
    uses       INTEGER NOT NULL DEFAULT 0    -- as document_use has it
);
CREATE UNIQUE INDEX note_id ON note (id);
CREATE INDEX note_claimed ON note (claimed) WHERE claimed IS NOT NULL;
CREATE INDEX note_digest ON note (digest);
CREATE INDEX note_task ON note (task) WHERE task IS NOT NULL;
-- All that lists are filtered by, so that one look through this index answers every combination of filters: 5 to 10 ms at 100,000 notes
-- (bench/notes_listing.py), where single indexes and a lookup of each row took 12 to 60.
CREATE INDEX note_listed ON note (
    project, task, type, category, status, entity_key, importance, updated_at, created_at, uses, tag_keys, path
);
-- The orders of lists: where many notes pass a filter, the first of them are found here at once.
CREATE INDEX note_updated ON note (updated_at);
CREATE INDEX note_created ON note (created_at);
CREATE INDEX note_importance ON note (importance, updated_at);
CREATE INDEX note_usage ON note (uses, updated_at);

-- What notes are about is counted from this index alone.
CREATE INDEX note_entities ON note (entity_key, project, task, type, updated_at, created_at, entity) WHERE entity_key IS NOT NULL;
CREATE INDEX note_problems ON note (project) WHERE problems > 0;

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
CREATE TRIGGER document_used AFTER INSERT ON document_use
BEGIN UPDATE note SET uses = new.uses WHERE document = new.document; END;
CREATE TRIGGER document_used_again AFTER UPDATE OF uses ON document_use
BEGIN UPDATE note SET uses = new.uses WHERE document = new.document; END;

-- Which documents are to be cut again is asked at every step of the indexing: a look at all took 0.9 ms at 10,000 documents.
CREATE INDEX document_cut ON document (chunking) WHERE deleted = 0;

ALTER TABLE document ADD COLUMN words TEXT NOT NULL DEFAULT '';   -- searched beside the text: tags, keywords, entity, ...
ALTER TABLE document ADD COLUMN importance REAL;                  -- of a note; NULL: it says nothing of it

-- Those that are there already are cut again, and read as notes then; their pieces keep their vectors.
UPDATE document SET chunking = NULL WHERE NOT deleted AND (path GLOB 'memory/notes/*' OR path GLOB 'memory/tasks/*/*');
