-- All steps up to 19, in one: what a new database is made of. Write a step and `make schema`; do not edit it.


CREATE TABLE migration (version INTEGER PRIMARY KEY, applied_at REAL NOT NULL, program TEXT);

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
    chunking   TEXT, clash INTEGER NOT NULL DEFAULT 0, cut_hash TEXT, pieces INTEGER, words TEXT NOT NULL DEFAULT '', importance REAL, mentions INTEGER, made TEXT NOT NULL DEFAULT 'untrusted', class TEXT NOT NULL DEFAULT 'untrusted', made_before TEXT, last_day TEXT, moment REAL, piece_days TEXT,                        -- the settings its pieces were cut by; NULL: not cut yet
    UNIQUE (project, path)
);

CREATE TABLE revision (
    change     INTEGER PRIMARY KEY AUTOINCREMENT,
    document   INTEGER NOT NULL REFERENCES document (id),
    number     INTEGER NOT NULL,
    hash       TEXT    NOT NULL,
    text       BLOB,                        -- zlib of UTF-8; NULL: deleted
    author     TEXT    NOT NULL,
    created_at REAL    NOT NULL, clash INTEGER NOT NULL DEFAULT 0, bytes INTEGER, by TEXT, made TEXT, doubted TEXT, class TEXT,
    UNIQUE (document, number)
);

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
, doubted INTEGER, day TEXT, last_day TEXT);

CREATE INDEX chunk_order ON chunk (document, position);

CREATE INDEX chunk_hash ON chunk (hash);

CREATE VIRTUAL TABLE keyword USING fts5 (
    header, body, content = '', contentless_delete = 1, tokenize = 'porter unicode61'
);

CREATE TABLE generation (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    provider   TEXT    NOT NULL,
    model      TEXT    NOT NULL,
    dimensions INTEGER NOT NULL,
    state      TEXT    NOT NULL CHECK (state IN ('building', 'live')),
    created_at REAL    NOT NULL
, calibration BLOB);

CREATE UNIQUE INDEX generation_one_live ON generation (state) WHERE state = 'live';

CREATE INDEX document_clash ON document (id) WHERE clash;

CREATE INDEX document_deleted ON document (updated_at) WHERE deleted;

CREATE TABLE project_link (
    one     INTEGER NOT NULL REFERENCES project (id),
    other   INTEGER NOT NULL REFERENCES project (id),
    made_at REAL    NOT NULL,                                         -- seconds since 1970
    PRIMARY KEY (one, other),
    CHECK (one < other)
) WITHOUT ROWID;

CREATE TABLE operation (
    id       TEXT PRIMARY KEY,               -- 32 hex digits, made by the machine
    asked    TEXT NOT NULL,                  -- a hash of what was asked under it
    revision INTEGER NOT NULL,               -- what it came to
    hash     TEXT NOT NULL,
    previous TEXT,                           -- the hash of the document before; NULL: there was none
    lines    INTEGER NOT NULL,
    done_at  REAL NOT NULL                   -- seconds since 1970
) WITHOUT ROWID;

CREATE INDEX operation_age ON operation (done_at);

CREATE TABLE transcript (
    id         INTEGER PRIMARY KEY,
    project    INTEGER NOT NULL REFERENCES project (id),
    agent      TEXT    NOT NULL,
    session    TEXT    NOT NULL,
    version    INTEGER NOT NULL,             -- grows with every change of the row
    "offset"   INTEGER NOT NULL,             -- bytes of the file that are here
    head       TEXT    NOT NULL,             -- what its machine knows the file again by; not read here
    mark       TEXT    NOT NULL,
    forgotten  INTEGER NOT NULL DEFAULT 0,   -- somebody asked that it be deleted, and not come again
    updated_at REAL    NOT NULL,             -- seconds since 1970
    UNIQUE (project, agent, session)
);

CREATE TABLE transcript_part (
    document   INTEGER PRIMARY KEY REFERENCES document (id),
    transcript INTEGER NOT NULL REFERENCES transcript (id),
    position   INTEGER NOT NULL
);

CREATE INDEX transcript_parts ON transcript_part (transcript, position);

CREATE INDEX document_sessions ON document (id) WHERE source = 'sessions' AND deleted = 0;

CREATE TABLE embedding_use (
    month    TEXT    NOT NULL,              -- 2026-11, UTC
    provider TEXT    NOT NULL,
    model    TEXT    NOT NULL,
    tokens   INTEGER NOT NULL,              -- cl100k_base
    PRIMARY KEY (month, provider, model)
) WITHOUT ROWID;

CREATE TABLE "vector_cache" (
    id      INTEGER PRIMARY KEY,
    model   TEXT NOT NULL,                  -- provider/model/dimensions
    hash    BLOB NOT NULL,
    vector  BLOB NOT NULL,
    kept_at REAL NOT NULL,
    UNIQUE (model, hash)
);

CREATE INDEX vector_cache_age ON vector_cache (kept_at);

CREATE TABLE breach (
    id        INTEGER PRIMARY KEY,
    what      TEXT    NOT NULL,              -- see store/health.py
    rows      INTEGER NOT NULL,
    found_at  REAL    NOT NULL,              -- seconds since 1970
    healed_at REAL                           -- NULL: not yet
);

CREATE UNIQUE INDEX breach_open ON breach (what) WHERE healed_at IS NULL;

CREATE TABLE mark (
    name  TEXT PRIMARY KEY,
    value REAL NOT NULL
) WITHOUT ROWID;

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

CREATE INDEX note_listed ON note (
    project, task, type, category, status, entity_key, importance, updated_at, created_at, uses, tag_keys, path
);

CREATE INDEX note_updated ON note (updated_at);

CREATE INDEX note_created ON note (created_at);

CREATE INDEX note_importance ON note (importance, updated_at);

CREATE INDEX note_usage ON note (uses, updated_at);

CREATE INDEX note_entities ON note (entity_key, project, task, type, updated_at, created_at, entity) WHERE entity_key IS NOT NULL;

CREATE INDEX note_problems ON note (project) WHERE problems > 0;

CREATE TABLE note_tag (
    document INTEGER NOT NULL REFERENCES note (document),
    tag      TEXT    NOT NULL                -- folded
);

CREATE UNIQUE INDEX note_tags ON note_tag (tag, document);

CREATE INDEX note_tags_of ON note_tag (document);

CREATE TABLE note_relation (
    document INTEGER NOT NULL REFERENCES note (document),
    kind     TEXT    NOT NULL,
    other    TEXT    NOT NULL
);

CREATE UNIQUE INDEX note_relations ON note_relation (document, kind, other);

CREATE INDEX note_relations_to ON note_relation (other, kind);

CREATE TABLE document_use (
    document INTEGER PRIMARY KEY REFERENCES document (id),
    uses     INTEGER NOT NULL,
    used_at  REAL    NOT NULL                -- seconds since 1970
);

CREATE TRIGGER document_used AFTER INSERT ON document_use
BEGIN UPDATE note SET uses = new.uses WHERE document = new.document; END;

CREATE TRIGGER document_used_again AFTER UPDATE OF uses ON document_use
BEGIN UPDATE note SET uses = new.uses WHERE document = new.document; END;

CREATE INDEX document_cut ON document (chunking) WHERE deleted = 0;

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

CREATE INDEX sealed_record_listed ON sealed_record (id, epoch, kind, stored_at);

CREATE INDEX sealed_record_place ON sealed_record (place, number);

CREATE TABLE sealed_stray (
    place     BLOB    PRIMARY KEY,
    id        BLOB    NOT NULL,              -- of the record
    due_at    REAL    NOT NULL               -- seconds since 1970: from then on it may be emptied
) WITHOUT ROWID;

CREATE TABLE life (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    id       BLOB    NOT NULL CHECK (length(id) = 16),   -- random
    change   INTEGER NOT NULL,               -- how many changes there were when it began
    last_at  REAL    NOT NULL,               -- when the last of them was made, in seconds since 1970; of none: when it began
    restores INTEGER NOT NULL,               -- how often it was found that the folder was put back; revisions are numbered above a million of each
    back_to  REAL                            -- when the last change was made that was not forgotten the last time; NULL: it never was
);

CREATE UNIQUE INDEX life_id ON life (id);

CREATE TABLE receipt_key (
    key BLOB NOT NULL CHECK (length(key) = 32)
);

CREATE TABLE document_name (
    document INTEGER NOT NULL REFERENCES document (id),
    name     TEXT    NOT NULL,               -- folded
    is_alias INTEGER NOT NULL,               -- 0: of its file, without .md
    PRIMARY KEY (name, is_alias, document)
) WITHOUT ROWID;

CREATE INDEX document_names_of ON document_name (document, is_alias);

CREATE TABLE document_tag (
    document INTEGER NOT NULL REFERENCES document (id),
    tag      TEXT    NOT NULL,               -- folded
    PRIMARY KEY (tag, document)
) WITHOUT ROWID;

CREATE INDEX document_tags_of ON document_tag (document);

CREATE TABLE document_link (
    document INTEGER NOT NULL REFERENCES document (id),
    target   TEXT    NOT NULL,               -- as [[it is written]], folded, without heading and alias
    name     TEXT    NOT NULL,               -- the last part of it
    PRIMARY KEY (document, target)
) WITHOUT ROWID;

CREATE INDEX document_links_to ON document_link (name);

CREATE INDEX chunk_doubted ON chunk (document) WHERE doubted = 1;

CREATE TABLE doubted_text (
    mark     INTEGER NOT NULL,
    document INTEGER NOT NULL REFERENCES document (id),
    PRIMARY KEY (mark, document)
) WITHOUT ROWID;

CREATE INDEX doubted_text_of ON doubted_text (document);

CREATE TABLE trusted_text (
    document INTEGER NOT NULL REFERENCES document (id),
    hash     TEXT    NOT NULL,
    at       REAL    NOT NULL,               -- seconds since 1970
    by       TEXT    NOT NULL,               -- the name of the machine
    PRIMARY KEY (document, hash)
) WITHOUT ROWID;

CREATE INDEX note_digits ON note (substr(id, length(rtrim(id, replace(id, '_', ''))) + 1));

CREATE INDEX note_digits_of ON note (project, substr(id, length(rtrim(id, replace(id, '_', ''))) + 1));

CREATE TABLE task (
    id          TEXT    PRIMARY KEY,                -- 16 hex digits, by its device
    project     TEXT    NOT NULL,
    recipe      TEXT    NOT NULL,
    repo        TEXT    NOT NULL,
    priority    INTEGER NOT NULL,
    ordered     BLOB    NOT NULL,                   -- the order, byte for byte as it was signed
    signature   BLOB    NOT NULL,
    signer      TEXT    NOT NULL,                   -- a device's key, hex
    approvals   TEXT    NOT NULL DEFAULT '[]',      -- JSON [[key, signature], ...] in hex
    state       TEXT    NOT NULL,                   -- proposed, active, paused, done, cancelled
    why         TEXT    NOT NULL DEFAULT '',
    planned_to  INTEGER NOT NULL,                   -- up to here its slots were made; seconds since 1970
    fresh_since REAL    NOT NULL,                   -- failures from before do not count any more
    created_at  REAL    NOT NULL
) WITHOUT ROWID;

CREATE INDEX task_in_state ON task (state, priority DESC);

CREATE TABLE slot (
    task        TEXT    NOT NULL REFERENCES task (id),
    at          INTEGER NOT NULL,                   -- when it is due; seconds since 1970
    state       TEXT    NOT NULL DEFAULT 'ready',   -- leased, running; succeeded, failed, cancelled, lost, missed, skipped
    attempt     INTEGER NOT NULL DEFAULT 1,
    fence       INTEGER NOT NULL DEFAULT 0,
    next_try_at REAL    NOT NULL,
    runner      TEXT,                               -- a device's key, hex
    lease_until REAL,
    is_repeatable INTEGER NOT NULL DEFAULT 0,
    to_cancel   TEXT,                               -- why it is to be killed
    reserved    INTEGER NOT NULL DEFAULT 0,
    microusd    INTEGER NOT NULL DEFAULT 0,
    tokens_in   INTEGER NOT NULL DEFAULT 0,
    tokens_out  INTEGER NOT NULL DEFAULT 0,
    duration_ms INTEGER NOT NULL DEFAULT 0,
    started_at  REAL,
    ended_at    REAL,
    reason      TEXT    NOT NULL DEFAULT '',
    note        TEXT,                               -- the path of its result
    commit_id   TEXT    NOT NULL DEFAULT '',
    is_checked  INTEGER,                            -- NULL: the recipe has no check
    seen_at     REAL,                               -- a session was told that it has ended
    PRIMARY KEY (task, at)
) WITHOUT ROWID;

CREATE INDEX slot_due ON slot (state, at);

CREATE INDEX slot_of_task ON slot (task, state, at, next_try_at);

CREATE INDEX slot_ended ON slot (ended_at) WHERE ended_at IS NOT NULL;

CREATE INDEX slot_ended_of_task ON slot (task, ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE task_spend (
    month       TEXT    NOT NULL,                   -- 2026-11, in UTC
    runner      TEXT    NOT NULL,
    microusd    INTEGER NOT NULL,
    tokens      INTEGER NOT NULL,
    PRIMARY KEY (month, runner)
) WITHOUT ROWID;

CREATE TABLE task_runner (
    key         TEXT    PRIMARY KEY,                -- hex
    name        TEXT    NOT NULL,
    recipes     TEXT    NOT NULL,                   -- JSON {name: needs approval}
    seen_at     REAL    NOT NULL
) WITHOUT ROWID;

CREATE TABLE task_log (
    task        TEXT    NOT NULL,
    at          INTEGER NOT NULL,
    part        INTEGER NOT NULL,
    record      BLOB    NOT NULL,
    stored_at   REAL    NOT NULL,
    PRIMARY KEY (task, at, part)
) WITHOUT ROWID;

CREATE INDEX task_log_age ON task_log (stored_at);

CREATE TABLE night_findings (
    only        INTEGER PRIMARY KEY CHECK (only = 1),
    at          REAL    NOT NULL,
    findings    TEXT    NOT NULL                    -- JSON
);

CREATE TABLE recall (
    hour    INTEGER NOT NULL,                -- since 1970
    project INTEGER NOT NULL REFERENCES project (id),
    source  TEXT    NOT NULL,                -- of the documents, as they have it
    uses    INTEGER NOT NULL,
    PRIMARY KEY (hour, project, source)
) WITHOUT ROWID;

CREATE INDEX chunk_day ON chunk (day) WHERE day IS NOT NULL;

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

WITH RECURSIVE background (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM background WHERE id < 256)
INSERT INTO keyword (rowid, header, body)
SELECT -id, replace(hex(zeroblob(3)), '00', char(0xF8FE) || ' '), replace(hex(zeroblob(40)), '00', char(0xF8FE) || ' ') FROM background ORDER BY 1;
