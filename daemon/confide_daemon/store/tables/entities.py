"""What notes are about, and how many of what kind there are, as SQL."""

# ruff: noqa: S608 - only constants of our own are put into SQL; every value is a parameter

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from confide_daemon.store.database import Table
from confide_daemon.store.rows import EntityRow, NoteCounts
from confide_daemon.store.tables.filters import spellings

TOP = 10
# Types or categories that are counted each for itself.
MOST_KINDS = 50


class EntityTable(Table):
    """The entities of notes; they have no rows of their own."""

    def keys(self, projects: frozenset[str] | None, *, tasks: bool) -> list[str]:
        """The names of all entities as they are compared (folded), each once; of notes that belong to tasks, or of others."""
        return self._database.remembered.get(("entity keys", projects, tasks), lambda: self._keys(projects, tasks))

    def _keys(self, projects: frozenset[str] | None, tasks: bool) -> list[str]:
        where, values = _within(projects, self._names(projects))
        sql = f"""SELECT DISTINCT n.entity_key FROM note n INDEXED BY note_entities
                  WHERE n.entity_key IS NOT NULL AND {where} AND n.task IS {"NOT " if tasks else ""}NULL"""
        return [key for (key,) in self._rows(sql, values)]

    def listed(self, projects: frozenset[str] | None, *, tasks: bool | None, type: str | None) -> list[EntityRow]:
        """Every entity with its notes; those of one name in several projects are several. The most written about first.

        Args:
            tasks: only of notes that belong to tasks (True), only of others (False), or of all (None).
            type: only of notes of this type.
        """
        if type is not None:  # whatever a caller says, so that it would be kept in as many forms
            return self._listed(projects, tasks=tasks, type=type)
        return self._database.remembered.get(("entities", projects, tasks), lambda: self._listed(projects, tasks=tasks))

    def among(self, keys: Sequence[str], projects: frozenset[str] | None, *, tasks: bool) -> list[EntityRow]:
        """What is about these names, as they are compared; the most written about first."""
        return self._listed(projects, tasks=tasks, among=keys)

    def _listed(
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
            where += " AND n.type COLLATE NOCASE IN (SELECT value FROM json_each(?))"
            values.append(json.dumps(spellings(self._rows, "type", [type])))
        if among is not None:
            where += " AND n.entity_key IN (SELECT value FROM json_each(?))"
            values.append(json.dumps(list(among)))
        found: list[EntityRow] = []
        for is_of_tasks in (False, True) if tasks is None else (tasks,):
            # SQLite takes the first column from the row that has the maximum: the newest spelling counts. Grouped by what the index is in
            # order by, which at 100,000 notes takes a quarter of the time that sorting them does.
            sql = f"""SELECT n.entity, n.project, count(*), min(n.created_at), max(n.updated_at) FROM note n INDEXED BY note_entities
                      WHERE n.entity_key IS NOT NULL AND {where} AND n.task IS {"NOT " if is_of_tasks else ""}NULL
                      GROUP BY n.entity_key, n.project"""
            found += [EntityRow(one, names[at], is_of_tasks, *more) for one, at, *more in self._rows(sql, values)]
        # Those that are equal stay in the order of their names.
        found.sort(key=itemgetter(3, 5), reverse=True)
        return found

    def note_counts(self, projects: frozenset[str] | None) -> NoteCounts:
        """How many notes there are in the projects, by what they say of themselves."""
        where, values = _within(projects, self._names(projects))
        # Grouped by what the index is in order by.
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
    """The condition on the projects, as numbers, which the indexes hold."""
    if projects is None:
        return "TRUE", []
    return "n.project IN (SELECT value FROM json_each(?))", [json.dumps(list(names))]
