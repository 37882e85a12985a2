-- What may be put before a model that did not ask for it (docs/agents.md, docs/decisions/0025): kept beside the texts, which cannot change it.
-- `made`: the lowest class of those who wrote it. `doubted`: lines that are lower, as JSON [[first, last], ...], counted from 1; NULL: none.
-- `class`: what comes of both, and of what the text itself says.

ALTER TABLE document ADD COLUMN made TEXT NOT NULL DEFAULT 'untrusted';
ALTER TABLE document ADD COLUMN class TEXT NOT NULL DEFAULT 'untrusted';
ALTER TABLE document ADD COLUMN made_before TEXT;                     -- what revisions count as that have no `made`: those from before this
ALTER TABLE revision ADD COLUMN by TEXT;                              -- the class of who wrote this one; NULL: not known
ALTER TABLE revision ADD COLUMN made TEXT;
ALTER TABLE revision ADD COLUMN doubted TEXT;
ALTER TABLE revision ADD COLUMN class TEXT;

-- A piece that holds such lines. NULL: nobody has looked, which counts as 1.
ALTER TABLE chunk ADD COLUMN doubted INTEGER;
CREATE INDEX chunk_doubted ON chunk (document) WHERE doubted = 1;

-- By what untrusted text is known again, wherever it comes back (confide_memory/classes/text_marks.py). Derived: of the revisions that hold it.
CREATE TABLE doubted_text (
    mark     INTEGER NOT NULL,
    document INTEGER NOT NULL REFERENCES document (id),
    PRIMARY KEY (mark, document)
) WITHOUT ROWID;
CREATE INDEX doubted_text_of ON doubted_text (document);

-- Parts of texts that a person has trusted, by the hash of just these lines. Not derived.
CREATE TABLE trusted_text (
    document INTEGER NOT NULL REFERENCES document (id),
    hash     TEXT    NOT NULL,
    at       REAL    NOT NULL,               -- seconds since 1970
    by       TEXT    NOT NULL,               -- the name of the machine
    PRIMARY KEY (document, hash)
) WITHOUT ROWID;

-- Who wrote what is here already is not known: persons and agents wrote memory files, so they count as an agent's, the lower of the two.
-- Transcripts, files from outside of memory and notes that say they were imported stay untrusted; what says that a rule made it is derived.
UPDATE document SET made = 'agent'
    WHERE source = 'memory' AND (path IN ('MEMORY.md', 'memory.md') OR path GLOB 'memory/*');
UPDATE document SET made = 'derived' WHERE made = 'agent' AND id IN (SELECT document FROM note WHERE source = 'hook');
UPDATE document SET made = 'untrusted' WHERE id IN (SELECT document FROM note WHERE source = 'import');
UPDATE document SET class = made, made_before = made;

-- All are read once more for what speaks to a model; their pieces keep their vectors.
UPDATE document SET chunking = NULL WHERE NOT deleted AND source = 'memory';
