"""Which documents a search may see, as SQL. Filters act inside the query, never after a limit."""

# ruff: noqa: S608 - the conditions are the constants below; every value is a parameter

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from confide_daemon.store.protocol import Filter

GLOB_MARKS = "*?["


def allowed_documents(rows: Callable[[str, Sequence[Any]], list[Any]], allowed: Filter) -> Sequence[int] | None:
    """The ids of the documents that pass, or None when all do (the fast way, and the usual one in a space of one project)."""
    if allowed == Filter():
        return None
    where, values = _conditions(allowed)
    sql = f"SELECT d.id FROM document d JOIN project p ON p.id = d.project WHERE NOT d.deleted AND {where}"
    # Some of these are remembered: as a list of integers they would take four times the memory, and each search a copy.
    found = array("q", (row[0] for row in rows(sql, values)))
    total = rows("SELECT count(*) FROM document WHERE NOT deleted", ())[0][0]
    return None if len(found) == total else found


def _conditions(allowed: Filter) -> tuple[str, list[Any]]:
    conditions: list[str] = ["TRUE"]
    values: list[Any] = []
    if allowed.projects is not None:
        conditions.append("p.name IN (SELECT value FROM json_each(?))")
        values.append(json.dumps(sorted(allowed.projects)))
    if allowed.sources is not None:
        conditions.append("d.source IN (SELECT value FROM json_each(?))")
        values.append(json.dumps(sorted(allowed.sources)))
    if allowed.path is not None:
        path = allowed.path.removeprefix("./").rstrip("/")
        if any(mark in path for mark in GLOB_MARKS):
            conditions.append("d.path GLOB ?")
            values.append(path)
        elif path not in ("", "."):
            # "/" is followed by "0": everything that begins with "path/".
            conditions.append("(d.path = ? OR (d.path > ? AND d.path < ?))")
            values += [path, path + "/", path + "0"]
    if allowed.since is not None:
        conditions.append("d.day >= ?")
        values.append(allowed.since)
    if allowed.until is not None:
        conditions.append("d.day <= ?")
        values.append(allowed.until)
    return " AND ".join(conditions), values
