-- The key of the caller by whose invite a machine came; NULL: the operator let it in, or it came before this was written down.
ALTER TABLE callers ADD COLUMN invited_by BLOB CHECK (length(invited_by) = 32);
CREATE INDEX callers_invited ON callers (invited_by) WHERE invited_by IS NOT NULL;
