-- Days that texts state (docs/search.md): a document has those of its name or its front matter, a piece those of its headings and entries.
-- Filled when a document is cut again, which the new name of the chunking brings about; until then `day` says what it always has.

ALTER TABLE document ADD COLUMN last_day TEXT;      -- of a week or a month, whose first day is `day`; NULL: the one day
ALTER TABLE document ADD COLUMN moment REAL;        -- seconds since 1970, where `day` is not stated: the day of this moment in the zone of who asks
ALTER TABLE document ADD COLUMN piece_days TEXT;    -- the first and the last day of its pieces that state one, "2026-11-01 2026-11-24"
ALTER TABLE chunk ADD COLUMN day TEXT;              -- NULL: that of its document
ALTER TABLE chunk ADD COLUMN last_day TEXT;
CREATE INDEX chunk_day ON chunk (day) WHERE day IS NOT NULL;
