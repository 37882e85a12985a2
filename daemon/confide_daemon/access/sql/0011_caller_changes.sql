-- Whose rights or whose access have changed, whoever did it and by which statement, so that a daemon reads these and not all callers again.
-- The newest few thousand are kept: whoever has not looked since reads all that it needs.
CREATE TABLE caller_changes (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  public_key BLOB NOT NULL
) STRICT;
CREATE TRIGGER caller_added AFTER INSERT ON callers BEGIN
  INSERT INTO caller_changes (public_key) VALUES (new.public_key);
  DELETE FROM caller_changes WHERE id <= last_insert_rowid() - 4096;
END;
CREATE TRIGGER caller_removed AFTER DELETE ON callers BEGIN
  INSERT INTO caller_changes (public_key) VALUES (old.public_key);
  DELETE FROM caller_changes WHERE id <= last_insert_rowid() - 4096;
END;
CREATE TRIGGER caller_changed
AFTER UPDATE OF alias, space, scope, projects, sources, approved_at, expires_at, revoked_at, successor ON callers BEGIN
  INSERT INTO caller_changes (public_key) VALUES (new.public_key);
  DELETE FROM caller_changes WHERE id <= last_insert_rowid() - 4096;
END;
