-- What every memory file says of itself as notes apps write it: its names, its tags, and the files that it links to. Derived, as the pieces are.
-- Where a link leads is looked up when it is asked for, so nothing has to be kept right when files come, go and move.

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

ALTER TABLE document ADD COLUMN mentions INTEGER;   -- rows that it has in the three; NULL: nobody has counted

-- Those that are there already are read once more; their pieces keep their vectors.
UPDATE document SET chunking = NULL WHERE NOT deleted AND source = 'memory';
