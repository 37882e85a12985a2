"""What notes are about, and how many of what kind there are, as SQL."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from confide_daemon.store.protocol import EntityRow, NoteCounts

Rows = Callable[[str, Sequence[Any]], list[Any]]

TOP = 10


def listed(rows: Rows, projects: frozenset[str] | None, *, tasks: bool | None, type: str | None) -> list[EntityRow]:
    """Every entity with its notes; those of one name in several projects are several. The most written about first.

    Args:
        tasks: only of notes that belong to tasks (True), only of others (False), or of all (None).
        type: only of notes of this type.
    """
    # SQLite takes the other columns from the row that has the maximum: the newest spelling counts.
    sql = """SELECT n.entity, p.name, n.task IS NOT NULL, count(*), min(n.created_at), max(n.updated_at)
             FROM note n JOIN project p ON p.id = n.project WHERE n.entity_key IS NOT NULL"""
    values: list[Any] = []
    if projects is not None:
        sql += " AND p.name IN (SELECT value FROM json_each(?))"
        values.append(json.dumps(sorted(projects)))
    if tasks is not None:
        sql += f" AND n.task IS {'NOT ' if tasks else ''}NULL"
    if type is not None:
        sql += " AND n.type = ? COLLATE NOCASE"
        values.append(type)
    sql += " GROUP BY n.entity_key, n.project, n.task IS NOT NULL ORDER BY 4 DESC, 6 DESC, 1"
    return [EntityRow(row[0], row[1], bool(row[2]), row[3], row[4], row[5]) for row in rows(sql, values)]


def counts(rows: Rows, projects: frozenset[str] | None) -> NoteCounts:
    """How many notes there are in the projects, by what they say of themselves."""
    where, values = "TRUE", []
    if projects is not None:
        where = "p.name IN (SELECT value FROM json_each(?))"
        values = [json.dumps(sorted(projects))]
    source = f"FROM note n JOIN project p ON p.id = n.project WHERE {where}"
    ((total, problems, created, updated),) = rows(
        f"SELECT count(*), coalesce(sum(n.problems > 0), 0), min(n.created_at), max(n.updated_at) {source}", values
    )

    def by(column: str) -> dict[str, int]:
        found = rows(f"SELECT coalesce({column}, ''), count(*) {source} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 50", values)
        return dict(found)

    return NoteCounts(total, problems, by("n.type"), by("n.category"), created, updated)
