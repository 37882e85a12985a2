-- How far each session's transcript has come. A row is committed with the documents that it speaks of, so that no message is taken twice.
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

-- Its documents, in order.
CREATE TABLE transcript_part (
    document   INTEGER PRIMARY KEY REFERENCES document (id),
    transcript INTEGER NOT NULL REFERENCES transcript (id),
    position   INTEGER NOT NULL
);
CREATE INDEX transcript_parts ON transcript_part (transcript, position);

-- Whether there is any, which every search asks.
CREATE INDEX document_sessions ON document (id) WHERE source = 'sessions' AND deleted = 0;
