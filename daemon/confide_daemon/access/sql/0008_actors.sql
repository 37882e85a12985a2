-- By whom a row of the audit log came about: the caller through whose invites all others came that led to it, by its key now; NULL: the
-- operator, or it was written before this was known.
ALTER TABLE audit ADD COLUMN actor BLOB CHECK (length(actor) = 32);
CREATE INDEX audit_actor ON audit (kind, actor, id) WHERE actor IS NOT NULL;
