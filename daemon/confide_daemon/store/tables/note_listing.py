"""SQL for lists of notes and of entities: filters, orders and totals.

Each list of notes is one scan of the index `note_listed`, which contains all columns that the
filters use.
"""

# ruff: noqa: S608 - only constants of our own are put into SQL; every value is a parameter

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from confide_daemon.store.database import AMONG, Table
from confide_daemon.store.rows import EntityRow, NoteCounts, NoteFilter, NoteList, NoteRow
from confide_daemon.store.tables.keyword import spellings
from confide_daemon.store.tables.note_table import SELECT, TAG_MARK, row_of
from confide_memory.documents import NOTES
from confide_memory.globs import is_glob, normal
from confide_memory.mentions import fold_name

MEMORY = "memory"  # the folder of all notes
# Index and columns of each order.
SORTS = {
    "updated": ("note_updated", ("updated_at",)),
    "created": ("note_created", ("created_at",)),
    "importance": ("note_importance", ("importance", "updated_at")),
    "usage": ("note_usage", ("uses", "updated_at")),
}
# The first notes are checked one by one before all are scanned: 2 ms, and more if their pages are
# not in memory.
WALKED = 1000
# So many are sorted here instead of by another scan, in 4 ms. Both by bench/notes_listing.py.
ORDERED = 4000


class NoteListing(Table):
    def page(self, wanted: NoteFilter, *, sort: str, limit: int, offset: int) -> NoteList:
        """Return a page of the notes that match a filter. `sort`: a key of `SORTS`, highest first;
        equal notes are ordered by their last change. Call it in a transaction, since it reads
        several times.
        """
        where, values = self._conditions(wanted)
        index, columns = SORTS[sort]
        order = ", ".join(f"n.{column} DESC" for column in (*columns, "document"))
        source = f"FROM note n INDEXED BY note_listed WHERE {where}"

        def total() -> int:
            sql = f"SELECT count(*) {source}"
            return self._database.result_cache.get(("notes", wanted), lambda: int(self._one(sql, values)))

        first = f"(SELECT * FROM note n INDEXED BY {index} ORDER BY {order} LIMIT {WALKED}) n"
        found = self._rows(f"SELECT n.document FROM {first} WHERE {where} LIMIT ? OFFSET ?", (*values, limit, offset))
        if len(found) == limit:
            return NoteList(self._notes([document for (document,) in found]), total())
        keys = ", ".join(f"n.{column}" for column in (*columns, "document"))
        found = self._rows(f"SELECT {keys} {source} LIMIT {ORDERED + 1}", values)
        if len(found) <= ORDERED:
            chosen = sorted(found, reverse=True)[offset : offset + limit]
            return NoteList(self._notes([row[-1] for row in chosen]), len(found))
        found = self._rows(f"SELECT n.document {source} ORDER BY {order} LIMIT ? OFFSET ?", (*values, limit, offset))
        return NoteList(self._notes([document for (document,) in found]), total())

    def _notes(self, documents: Sequence[int]) -> list[tuple[NoteRow, str]]:
        """Return the notes of these documents in this order, each with the text of its first chunk."""
        listed = json.dumps(documents)
        notes = {row[0]: row_of(row) for row in self._rows(f"{SELECT} WHERE n.document {AMONG}", (listed,))}
        sql = f"SELECT document, text FROM chunk WHERE document {AMONG} AND position = 0"
        texts = dict(self._rows(sql, (listed,)))
        return [(notes[document], texts.get(document, "")) for document in documents]

    def _conditions(self, wanted: NoteFilter) -> tuple[str, list[Any]]:
        conditions: list[str] = []
        values: list[Any] = []

        def add(condition: str, *more: Any) -> None:
            conditions.append(condition)
            values.extend(more)

        # Project numbers are the first column of the index.
        if wanted.projects is not None:
            add(f"n.project {AMONG}", self._numbers(wanted.projects))
        if wanted.without_tasks and wanted.task_id is None:
            add("n.task IS NULL")
        elif wanted.without_tasks and wanted.task_projects is None:
            add("(n.task IS NULL OR n.task = ?)", wanted.task_id)
        elif wanted.without_tasks and wanted.task_projects is not None:
            place = f"n.project {AMONG}"
            add(f"(n.task IS NULL OR n.task = ? AND {place})", wanted.task_id, self._numbers(wanted.task_projects))
        else:
            add("TRUE")
        for column, words in (("type", wanted.types), ("category", [wanted.category]), ("status", [wanted.status])):
            if asked := [word for word in words if word is not None]:
                said = spellings(self._rows, column, asked)
                # Not IN: SQLite makes a table of a list of more than two values, and searches it
                # for each note.
                add(f"({' OR '.join([f'n.{column} = ? COLLATE NOCASE'] * len(said))})", *said)
        if wanted.entity is not None:
            add("n.entity_key = ?", fold_name(wanted.entity))
        for tag in wanted.tags:
            add("instr(n.tag_keys, ?)", f"{TAG_MARK}{fold_name(tag)}{TAG_MARK}")
        if wanted.since is not None:
            add("n.updated_at >= ?", wanted.since)
        if wanted.until is not None:
            add("n.updated_at < ?", wanted.until)
        if wanted.classes is not None:
            add(f"(SELECT d.class FROM document d WHERE d.id = n.document) {AMONG}", json.dumps(sorted(wanted.classes)))
        if wanted.path is not None:
            _add_path(normal(wanted.path), wanted.without_tasks and wanted.task_id is None, add)
        return " AND ".join(conditions), values

    def _numbers(self, projects: frozenset[str]) -> str:
        found = self._rows(f"SELECT id FROM project WHERE name {AMONG}", (json.dumps(sorted(projects)),))
        return json.dumps([number for (number,) in found])


def _add_path(path: str, is_without_tasks: bool, add: Callable[..., None]) -> None:
    if is_glob(path):
        add("path_matches(n.path, ?)", path)
    elif path not in ("", MEMORY) and not (is_without_tasks and f"{path}/" == NOTES):
        # "/" is followed by "0": everything that begins with "path/".
        add("(n.path = ? OR (n.path > ? AND n.path < ?))", path, path + "/", path + "0")


TOP = 10
# Types or categories that are counted, at most.
MOST_KINDS = 50


class EntityTable(Table):
    """The entities (people, things, topics) that notes are about, read from the notes' rows."""

    def keys(self, projects: frozenset[str] | None, *, tasks: bool) -> list[str]:
        """Return the normalized names of all entities in these projects (None: all). `tasks` True:
        only of notes that belong to tasks; False: only of the others.
        """
        return self._database.result_cache.get(("entity keys", projects, tasks), lambda: self._keys(projects, tasks))

    def _keys(self, projects: frozenset[str] | None, tasks: bool) -> list[str]:
        where, values = _within(projects, self._names(projects))
        sql = f"""SELECT DISTINCT n.entity_key FROM note n INDEXED BY note_entities
                  WHERE n.entity_key IS NOT NULL AND {where} AND n.task IS {"NOT " if tasks else ""}NULL"""
        return [key for (key,) in self._rows(sql, values)]

    def list_entities(
        self, projects: frozenset[str] | None, *, tasks: bool | None, type: str | None
    ) -> list[EntityRow]:
        """Return all entities with the number of their notes, most notes first. The same name in
        two projects makes two entities.

        `tasks`: True: only notes that belong to tasks; False: only the others; None: all. `type`:
        only notes of this type; None: all.
        """
        if type is not None:  # not cached: callers may send any text as the type
            return self._select_entities(projects, tasks=tasks, type=type)
        return self._database.result_cache.get(
            ("entities", projects, tasks), lambda: self._select_entities(projects, tasks=tasks)
        )

    def among(self, keys: Sequence[str], projects: frozenset[str] | None, *, tasks: bool) -> list[EntityRow]:
        """Return the entities with these normalized names, most notes first. `tasks` True: only of
        notes that belong to tasks; False: only of the others.
        """
        return self._select_entities(projects, tasks=tasks, among=keys)

    def _select_entities(
        self,
        projects: frozenset[str] | None,
        *,
        tasks: bool | None,
        type: str | None = None,
        among: Sequence[str] | None = None,
    ) -> list[EntityRow]:
        names = self._names(projects)
        where, values = _within(projects, names)
        if type is not None:
            where += f" AND n.type COLLATE NOCASE {AMONG}"
            values.append(json.dumps(spellings(self._rows, "type", [type])))
        if among is not None:
            where += f" AND n.entity_key {AMONG}"
            values.append(json.dumps(list(among)))
        found: list[EntityRow] = []
        for is_of_tasks in (False, True) if tasks is None else (tasks,):
            # SQLite takes the first column from the row with the maximum: the newest spelling
            # counts. Grouping in the order of the index takes a quarter of the time of sorting at
            # 100,000 notes.
            sql = f"""SELECT n.entity, n.project, count(*), min(n.created_at), max(n.updated_at) FROM note n INDEXED BY note_entities
                      WHERE n.entity_key IS NOT NULL AND {where} AND n.task IS {"NOT " if is_of_tasks else ""}NULL
                      GROUP BY n.entity_key, n.project"""
            found += [EntityRow(one, names[at], is_of_tasks, *more) for one, at, *more in self._rows(sql, values)]
        # Equal ones stay in the order of their names.
        found.sort(key=itemgetter(3, 5), reverse=True)
        return found

    def note_counts(self, projects: frozenset[str] | None) -> NoteCounts:
        """Return how many notes the projects (None: all) have, in total, by type and by category."""
        where, values = _within(projects, self._names(projects))
        # Grouped in the order of the index.
        found = self._rows(
            f"""SELECT n.type, n.category, count(*), min(n.created_at), max(n.updated_at) FROM note n INDEXED BY note_listed
                WHERE {where} GROUP BY n.project, n.task, n.type, n.category""",
            values,
        )
        sql = f"SELECT count(*) FROM note n INDEXED BY note_problems WHERE n.problems > 0 AND {where}"
        problems = int(self._rows(sql, values)[0][0])

        def by(column: int) -> dict[str, int]:
            sums: Counter[str] = Counter()
            for row in found:
                sums[row[column] or ""] += row[2]
            return dict(sorted(sums.items(), key=lambda one: (-one[1], one[0]))[:MOST_KINDS])

        return NoteCounts(
            sum(row[2] for row in found),
            problems,
            by(0),
            by(1),
            min((row[3] for row in found), default=None),
            max((row[4] for row in found), default=None),
        )

    def _names(self, projects: frozenset[str] | None) -> dict[int, str]:
        return {
            number: name
            for number, name in self._rows("SELECT id, name FROM project")
            if projects is None or name in projects
        }


def _within(projects: frozenset[str] | None, names: Mapping[int, str]) -> tuple[str, list[Any]]:
    """Return the condition on the projects, as numbers, which the indexes contain."""
    if projects is None:
        return "TRUE", []
    return f"n.project {AMONG}", [json.dumps(list(names))]
