-- How many rows of the audit log there are of each kind and actor, so that a full log is not counted at each new one. The actor x'' stands
-- for all of a kind, those of the operator included.
CREATE TABLE audit_counts (
  kind TEXT NOT NULL,
  actor BLOB NOT NULL,
  rows INTEGER NOT NULL,
  PRIMARY KEY (kind, actor)
) STRICT, WITHOUT ROWID;
CREATE INDEX audit_counts_rows ON audit_counts (kind, rows);
INSERT INTO audit_counts SELECT kind, x'', count(*) FROM audit GROUP BY kind;
INSERT INTO audit_counts SELECT kind, actor, count(*) FROM audit WHERE actor IS NOT NULL GROUP BY kind, actor;
