"""The projects of a space and the links between them, as SQL."""

# ruff: noqa: S608 - only the constants below are put into SQL; every value is a parameter

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from confide_daemon.store.rows import ProjectRow

Rows = Callable[[str, Sequence[Any]], list[Any]]

_PAIR = "SELECT min(a.id, b.id), max(a.id, b.id)"
_OF_NAMES = "FROM project a, project b WHERE a.name = ? AND b.name = ?"


def listed(
    rows: Rows, projects: frozenset[str] | None, sources: frozenset[str] | None, *, limit: int
) -> list[ProjectRow]:
    """The projects that hold a living document of these sources, the last changed first."""
    sql = "SELECT p.name, count(*), max(d.updated_at) FROM document d JOIN project p ON p.id = d.project WHERE NOT d.deleted"
    values: list[Any] = []
    for column, wanted in (("p.name", projects), ("d.source", sources)):
        if wanted is not None:
            sql += f" AND {column} IN (SELECT value FROM json_each(?))"
            values.append(json.dumps(sorted(wanted)))
    sql += " GROUP BY p.id ORDER BY max(d.updated_at) DESC, p.name LIMIT ?"
    return [ProjectRow(*row) for row in rows(sql, (*values, limit))]


def links(rows: Rows) -> list[tuple[str, str]]:
    """Every pair of linked projects, once."""
    sql = "SELECT a.name, b.name FROM project_link l JOIN project a ON a.id = l.one JOIN project b ON b.id = l.other"
    return [(row[0], row[1]) for row in rows(f"{sql} ORDER BY a.name, b.name", ())]


def add_link(rows: Rows, one: str, other: str, *, now: float) -> None:
    """Links two projects, of which neither needs a document yet."""
    for name in (one, other):
        rows("INSERT INTO project (name) VALUES (?) ON CONFLICT DO NOTHING", (name,))
    rows(f"INSERT INTO project_link {_PAIR}, ? {_OF_NAMES} ON CONFLICT DO NOTHING", (now, one, other))


def remove_link(rows: Rows, one: str, other: str) -> None:
    """Ends a link, if there is one."""
    rows(f"DELETE FROM project_link WHERE (one, other) IN ({_PAIR} {_OF_NAMES})", (one, other))
