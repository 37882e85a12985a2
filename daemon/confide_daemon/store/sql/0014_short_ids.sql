-- The hex digits that a note's id ends in, which its short form begins with (confide_memory/note_names.py). `notes.DIGITS` is the same.

CREATE INDEX note_digits ON note (substr(id, length(rtrim(id, replace(id, '_', ''))) + 1));
CREATE INDEX note_digits_of ON note (project, substr(id, length(rtrim(id, replace(id, '_', ''))) + 1));
