-- Which version of the program has brought the data folder to which steps: those of the registry, and those of the spaces, which each of
-- them takes when it is opened. `snapshot`: the one that was made before, if one was. Every later version can read this.
CREATE TABLE migration (
  at REAL NOT NULL,
  program TEXT NOT NULL,
  registry INTEGER NOT NULL,
  spaces INTEGER NOT NULL,
  snapshot TEXT
) STRICT;

-- The version of confide that a machine had when it attached the last time; NULL: it has not since this is written down.
ALTER TABLE callers ADD COLUMN proxy_version TEXT;
