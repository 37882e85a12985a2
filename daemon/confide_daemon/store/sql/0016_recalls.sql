-- How often documents of a project were read, or shown among what a search found, by hour: days of any zone are counted from it. Not derived,
-- and nothing is lost that matters if it is. Rows older than a year and some days go when another is written.

CREATE TABLE recall (
    hour    INTEGER NOT NULL,                -- since 1970
    project INTEGER NOT NULL REFERENCES project (id),
    source  TEXT    NOT NULL,                -- of the documents, as they have it
    uses    INTEGER NOT NULL,
    PRIMARY KEY (hour, project, source)
) WITHOUT ROWID;

-- What is known of the time before: each document once, when it was recalled last.
INSERT INTO recall (hour, project, source, uses)
    SELECT CAST(u.used_at / 3600 AS INTEGER), d.project, d.source, count(*)
    FROM document_use u JOIN document d ON d.id = u.document GROUP BY 1, 2, 3;
