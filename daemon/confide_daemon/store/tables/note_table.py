"""SQL for the fields and tags of notes, and for their relations to other notes."""

# ruff: noqa: S608 - only constants of our own are put into SQL; every value is a parameter

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from confide_daemon.store.database import AMONG, Table, within
from confide_daemon.store.rows import DocumentRow, NotePiece, NotePlace, NoteRow, RelationRow, Supersession
from confide_memory.mentions import fold_name
from confide_memory.note import Note
from confide_memory.note_names import LEAST_SAID, SHORT, digits_of, short_of

# The hex digits at the end of a note's id; `note_digits` is an index of them.
DIGITS = "substr({note}.id, length(rtrim({note}.id, replace({note}.id, '_', ''))) + 1)"

# Notes with the same text that are compared, at most; they may differ in title or entity.
MOST_TWINS = 64
COLUMNS = """n.document, n.id, p.name, d.path, d.revision, n.task, n.title, n.type, n.category, n.entity, n.status, n.source, n.tags,
    n.importance, n.created_at, n.updated_at, d.author, n.uses, n.problems, d.class"""
SELECT = f"SELECT {COLUMNS} FROM note n JOIN document d ON d.id = n.document JOIN project p ON p.id = n.project"

# Superseding notes that are returned, at most.
MOST_NEWER = 500
# Notes that supersede the found notes directly or through others, and their relations, at most: a
# chain of 2,000 notes that each supersede the previous one takes 20 ms.
MOST_FOLLOWED = 2000
MOST_LINKS = 20_000

# Separates the tags in `tag_keys`; tags do not contain it.
TAG_MARK = "\n"


class NoteTable(Table):
    """Notes that are not deleted, found by their document or by their own id."""

    def replace(self, document: DocumentRow, note: Note | None, *, now: float) -> None:
        """Replace all rows of a document as a note. `note` None: remove them, since the document is
        no note.
        """
        before = self._rows(
            "SELECT digest, stated_at, created_at, updated_at, id FROM note WHERE document = ?", (document.id,)
        )
        for table in ("note_relation", "note_tag", "note"):
            self._rows(f"DELETE FROM {table} WHERE document = ?", (document.id,))
        importance = None if note is None else note.importance
        self._rows("UPDATE document SET importance = ? WHERE id = ?", (importance, document.id))
        if note is not None:
            self._add(document, note, before[0] if before else None, now=now)
        if before:
            self._pass_on(before[0][4])

    def _add(self, document: DocumentRow, note: Note, before: Any, *, now: float) -> None:
        # A copy of another note's file gets an id from its own path, so that both can be reached;
        # if that is taken, its number is added.
        names = (note.id, note.path_id, f"{note.path_id}{document.id:x}")
        identity = next(name for name in names if not self._rows("SELECT 1 FROM note WHERE id = ?", (name,)))
        tags = list(dict.fromkeys(fold_name(tag) for tag in note.tags))
        relations = list(dict.fromkeys((one.kind, self._whole(document.project, one.other)) for one in note.relations))
        changed = document.updated_at or now
        first = before[2] if before else changed
        if before is None and note.created is None:
            # The note was deleted or not yet a note, and came back.
            sql = "SELECT created_at FROM revision WHERE document = ? ORDER BY number LIMIT 1"
            first = next((row[0] for row in self._rows(sql, (document.id,))), changed)
        created, updated = _moments(note, before, first, changed)
        self._rows(
            """INSERT INTO note (document, id, claimed, project, path, task, title, type, category, entity, entity_key, status, source,
               tags, tag_keys, importance, created_at, updated_at, stated_at, digest, problems, parts, uses)
               SELECT id, ?, ?, project, path, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
               coalesce((SELECT uses FROM document_use u WHERE u.document = document.id), 0) FROM document WHERE id = ?""",
            (
                identity,
                None if identity == note.id else note.id,
                note.task_id,
                note.title,
                note.type,
                note.category,
                note.entity,
                fold_name(note.entity) if note.entity else None,
                note.status,
                note.source,
                json.dumps(note.tags, ensure_ascii=False),
                TAG_MARK.join(["", *tags, ""]) if tags else "",
                note.importance,
                created,
                updated,
                note.updated,
                note.digest,
                len(note.problems) + (identity != note.id),
                len(tags) + len(relations),
                document.id,
            ),
        )
        if (note.created, note.updated) != (None, None):
            day = "date(?, 'unixepoch')"
            # Midnight in UTC is how programs store a day without a time.
            moment = "CASE WHEN CAST(? AS INTEGER) % 86400 THEN ? END"
            sql = f"""UPDATE document SET day = {day}, last_day = NULL, moment = {moment}
                      WHERE id = ? AND {day} BETWEEN '1970' AND '9999'"""
            self._rows(sql, (updated, updated, updated, document.id, updated))
        for tag in tags:
            self._rows("INSERT INTO note_tag (document, tag) VALUES (?, ?)", (document.id, tag))
        for kind, other in relations:
            self._rows("INSERT INTO note_relation (document, kind, other) VALUES (?, ?, ?)", (document.id, kind, other))
        self._name_whole(document.project, identity)

    def _whole(self, project: str, said: str) -> str:
        """Return the id that a short id in a file of the project means, or the short id itself if
        no note or several notes of the project match.

        Only the own project counts: otherwise a caller could guess four digits of a note in a
        project that he cannot reach, and claim that his note supersedes it.
        """
        short = SHORT.fullmatch(said)
        found = self.notes_with_id_prefix(short[1], frozenset((project,)), most=2) if short else []
        return found[0].id if len(found) == 1 else said

    def _name_whole(self, project: str, identity: str) -> None:
        """Replace short ids by this note's full id in relations that were stated before the note
        existed.
        """
        digits = digits_of(identity)
        shorts = json.dumps([f"mem_{digits[:most]}" for most in range(LEAST_SAID, len(digits) + 1)])
        for (said,) in self._rows(f"SELECT DISTINCT other FROM note_relation WHERE other {AMONG}", (shorts,)):
            if self._whole(project, said) == identity:
                sql = """UPDATE OR IGNORE note_relation SET other = ? WHERE other = ?
                         AND document IN (SELECT n.document FROM note n JOIN project p ON p.id = n.project WHERE p.name = ?)"""
                self._rows(sql, (identity, said, project))

    def _pass_on(self, identity: str) -> None:
        """Give an id that its note no longer has to the first other note that claims it, after its
        file was renamed, or copied and removed.
        """
        freed: str | None = identity
        while freed is not None and not self._rows("SELECT 1 FROM note WHERE id = ?", (freed,)):
            heir = self._rows("SELECT document, id FROM note WHERE claimed = ? ORDER BY document LIMIT 1", (freed,))
            if heir:
                sql = "UPDATE note SET id = claimed, claimed = NULL, problems = problems - 1 WHERE document = ?"
                self._rows(sql, (heir[0][0],))
            freed = heir[0][1] if heir else None

    def find(self, identity: str, projects: frozenset[str] | None) -> NoteRow | None:
        """Return the note with this id, or None if the projects (None: all) have no such note."""
        found = self._rows(f"{SELECT} WHERE n.id = ?", (identity,))
        note = row_of(found[0]) if found else None
        return note if note and (projects is None or note.project in projects) else None

    def notes_with_path(self, path: str, projects: frozenset[str] | None, *, most: int) -> list[NoteRow]:
        """Return up to `most` notes whose file has this path; if there are none, those whose path
        ends with it. Only notes of these projects count (None: all).
        """
        reached, names = within("p.name", projects)
        end = f"/{path}"
        for test, value in (("d.path = ?", (path,)), ("substr(d.path, ?) = ?", (-len(end), end))):
            found = self._rows(f"{SELECT} WHERE {test}{reached} ORDER BY n.document LIMIT ?", (*value, *names, most))
            if found:
                return [row_of(row) for row in found]
        return []

    def notes_with_id_prefix(self, digits: str, projects: frozenset[str] | None, *, most: int) -> list[NoteRow]:
        """Return up to `most` notes of these projects (None: all) whose ids have these hex digits
        after the last underscore, or digits that begin with them.
        """
        reached, names = within("p.name", projects)
        own = DIGITS.format(note="n")
        # "g" sorts after all hex digits.
        sql = f"{SELECT} WHERE {own} >= ? AND {own} < ?{reached} ORDER BY {own}, n.document LIMIT ?"
        return [row_of(row) for row in self._rows(sql, (digits, f"{digits}g", *names, most))]

    def short(self, identities: Sequence[str], projects: frozenset[str] | None) -> dict[str, str]:
        """Map each of these note ids to the shortest beginning of its last hex digits that is
        unique among the notes of the projects (None: all). Ids without a note are left out.
        """
        own, other = DIGITS.format(note="n"), DIGITS.format(note="o")
        # The neighbors in the order of digits share the longest prefix. Each project is searched by
        # itself: one pass over all notes to those of a small project takes 100 ms at 100,000 notes.
        numbers = [] if projects is None else [json.dumps(sorted(projects))]

        def nearest(sign: str, order: str, end: str) -> str:
            of = "" if projects is None else "o.project = p.id AND"
            first = f"FROM note o WHERE {of} {other} {sign} {own} AND o.id <> n.id ORDER BY {other} {order} LIMIT 1"
            if projects is None:
                return f"(SELECT {other} {first})"
            return f"(SELECT {end}(d) FROM (SELECT (SELECT {other} {first}) AS d FROM project p WHERE p.name {AMONG}))"

        before, after = nearest("<=", "DESC", "max"), nearest(">=", "ASC", "min")
        sql = f"SELECT n.id, {before}, {after} FROM note n WHERE n.id {AMONG}"
        return {row[0]: short_of(*row) for row in self._rows(sql, (*numbers, *numbers, json.dumps(list(identities))))}

    def of_document(self, document: int) -> NoteRow | None:
        """Return the note that this document is, or None if the document is not a note."""
        found = self._rows(f"{SELECT} WHERE n.document = ?", (document,))
        return row_of(found[0]) if found else None

    def of_documents(self, documents: Sequence[int]) -> dict[int, NoteRow]:
        found = self._rows(f"{SELECT} WHERE n.document {AMONG}", (json.dumps(list(documents)),))
        return {row[0]: row_of(row) for row in found}

    def notes_with_ids(self, identities: Sequence[str], projects: frozenset[str] | None) -> dict[str, NoteRow]:
        """Return the notes with these ids, by id. Notes that do not exist in the projects (None:
        all) are left out.
        """
        found = self._rows(f"{SELECT} WHERE n.id {AMONG}", (json.dumps(list(identities)),))
        notes = [row_of(row) for row in found]
        return {note.id: note for note in notes if projects is None or note.project in projects}

    def supersessions(
        self,
        documents: Sequence[int],
        projects: frozenset[str] | None,
        classes: frozenset[str] | None = None,
        *,
        most: int = MOST_NEWER,
    ) -> list[Supersession]:
        """Return the notes that say that they supersede one of these documents, newest first and at
        most `most`. Only notes of these projects and trust classes count (None: all).
        """
        (reached, names), (chosen, more) = within("p.name", projects), within("d.class", classes)
        sql = f"""SELECT a.document, b.document, b.id, b.title, d.path, p.name FROM note a
                 JOIN note_relation r ON r.other = a.id AND r.kind = 'supersedes' JOIN note b ON b.document = r.document
                 JOIN document d ON d.id = b.document JOIN project p ON p.id = b.project
                 WHERE a.document {AMONG} AND b.document <> a.document{reached}{chosen}
                 ORDER BY b.updated_at DESC, b.document LIMIT ?"""
        return [Supersession(*row) for row in self._rows(sql, (json.dumps(list(documents)), *names, *more, most))]

    def statuses(self, documents: Sequence[int]) -> dict[int, str]:
        """Return the status of each document that is a note and has one, by document id."""
        sql = f"SELECT document, status FROM note WHERE document {AMONG} AND status IS NOT NULL"
        return dict(self._rows(sql, (json.dumps(list(documents)),)))

    def supersession_chains(
        self, documents: Sequence[int], projects: frozenset[str] | None, classes: frozenset[str] | None = None
    ) -> list[Supersession]:
        """Return the notes that supersede these documents, the notes that supersede those, and so
        on, as `supersessions` does for one step. At most MOST_FOLLOWED documents are followed.
        """
        values: list[Any] = [json.dumps(list(documents)), MOST_FOLLOWED]
        within = ""
        if projects is not None:
            within = f"AND b.project IN (SELECT id FROM project WHERE name {AMONG})"
            values.insert(1, json.dumps(sorted(projects)))
        sql = f"""WITH RECURSIVE link (document) AS (
                      SELECT value FROM json_each(?) UNION
                      SELECT b.document FROM link CROSS JOIN note a ON a.document = link.document
                      CROSS JOIN note_relation r ON r.other = a.id AND r.kind = 'supersedes'
                      CROSS JOIN note b ON b.document = r.document {within} LIMIT ?)
                  SELECT document FROM link"""
        reached = [row[0] for row in self._rows(sql, values)]
        return self.supersessions(reached, projects, classes, most=MOST_LINKS)

    def twins(self, project: str, task: str | None, digest: bytes) -> list[NoteRow]:
        """Return the notes of a project and task whose text has this digest, oldest first and at
        most MOST_TWINS. `task` None: notes without a task.
        """
        sql = f"{SELECT} WHERE n.digest = ? AND p.name = ? AND n.task IS ? ORDER BY n.document LIMIT {MOST_TWINS}"
        return [row_of(found) for found in self._rows(sql, (digest, project, task))]

    def relations(self, identities: Sequence[str], projects: frozenset[str] | None) -> list[RelationRow]:
        """Return all relations from or to these notes. Both notes of a relation must exist in the
        projects (None: all).
        """
        sql = """SELECT a.id, r.kind, b.id FROM note_relation r JOIN note a ON a.document = r.document JOIN note b ON b.id = r.other
                 JOIN project pa ON pa.id = a.project JOIN project pb ON pb.id = b.project
                 WHERE {end} IN (SELECT value FROM json_each(?))"""
        (one, names), (other, _) = within("pa.name", projects), within("pb.name", projects)
        sql += one + other
        values = [json.dumps(list(identities)), *names, *names]
        both = f"{sql.format(end='a.id')} UNION {sql.format(end='b.id')} ORDER BY 1, 2, 3"
        return [RelationRow(*row) for row in self._rows(both, (*values, *values))]

    def first_pieces(self, documents: Sequence[int], *, first: int) -> list[NotePiece]:
        """Return the first chunks of each of these notes, at most `first` a note, in the order of
        the text.
        """
        sql = f"""SELECT c.id, c.document, c.position, c.hash, c.tokens, c.text FROM chunk c JOIN note n ON n.document = c.document
                  WHERE c.document {AMONG} AND c.position < ? ORDER BY c.document, c.position"""
        return [NotePiece(*row) for row in self._rows(sql, (json.dumps(list(documents)), first))]

    def places(self, projects: frozenset[str] | None) -> list[NotePlace]:
        """Return the project and the task of every note in these projects (None: all projects), the
        note with the latest text first.
        """
        reached, values = within("p.name", projects)
        where = reached.replace(" AND", "WHERE", 1)
        sql = f"""SELECT n.document, p.name, n.task, n.updated_at FROM note n JOIN project p ON p.id = n.project {where}
                  ORDER BY n.updated_at DESC, n.created_at DESC, n.document DESC"""
        return [NotePlace(*row) for row in self._rows(sql, values)]

    def count(self, projects: frozenset[str] | None, *, most: int) -> int:
        """Count the notes of the projects (None: all), but stop at `most`."""
        where, values = "TRUE", []
        if projects is not None:
            where = f"n.project IN (SELECT id FROM project WHERE name {AMONG})"
            values = [json.dumps(sorted(projects))]
        return int(
            self._rows(f"SELECT count(*) FROM (SELECT 1 FROM note n WHERE {where} LIMIT ?)", (*values, most))[0][0]
        )

    def find_superseded(self, documents: Sequence[int], projects: frozenset[str] | None) -> set[int]:
        """Return the ids of those documents that are superseded by a note of these projects (None:
        all).
        """
        reached, names = within("p.name", projects)
        reached = reached and f"JOIN project p ON p.id = a.project{reached}"
        sql = f"""SELECT DISTINCT b.document FROM note b JOIN note_relation r ON r.other = b.id AND r.kind = 'supersedes'
                  JOIN note a ON a.document = r.document AND a.document != b.document {reached} WHERE b.document {AMONG}"""
        return {row[0] for row in self._rows(sql, (*names, json.dumps(list(documents))))}

    def tags_among(self, words: Sequence[str], projects: frozenset[str] | None) -> list[str]:
        """Return the words that are tags of notes in these projects (None: all), in the order
        given. The words must be normalized as stored tags are (`fold_name`).
        """
        reached, names = within("p.name", projects)
        sql = f"""SELECT j.value FROM json_each(?) j WHERE EXISTS (SELECT 1 FROM note_tag t JOIN note n ON n.document = t.document
                  JOIN project p ON p.id = n.project WHERE t.tag = j.value{reached}) ORDER BY j.key"""
        return [row[0] for row in self._rows(sql, (json.dumps(list(words)), *names))]


def _moments(note: Note, before: Any, first: float, changed_at: float) -> tuple[float, float]:
    """Return (created, updated). A user who edits the text seldom changes the file's own date of
    the last change, so a changed text counts.
    """
    created = first if note.created is None else note.created
    if note.updated is None:
        is_same = before is not None and before[0] == note.digest
        return created, before[3] if is_same else changed_at if note.created is None or before else created
    if before is not None and before[1] == note.updated:
        return created, before[3] if before[0] == note.digest else changed_at
    return created, note.updated


def row_of(row: Sequence[Any]) -> NoteRow:
    values = list(row)
    values[12] = tuple(json.loads(values[12]))
    return NoteRow(*values)
