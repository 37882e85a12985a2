"""Which documents a search may see, as SQL. Filters act inside the query, never after a limit."""

# ruff: noqa: S608 - the conditions are the constants below; every value is a parameter

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from confide_daemon.store.database import AMONG, Database, Rows
from confide_daemon.store.rows import Filter
from confide_daemon.store.tables.notes import folded

GLOB_MARKS = "*?["


def allowed_documents(database: Database, allowed: Filter) -> Sequence[int] | None:
    """The ids of the documents that pass, or None when all do (the fast way, and the usual one in a space of one project)."""
    return database.remembered.get(allowed, lambda: _allowed_documents(database.rows, allowed))


def _allowed_documents(rows: Rows, allowed: Filter) -> Sequence[int] | None:
    allowed = _simplest(rows, allowed)
    if allowed == Filter():
        return None
    where, values = _conditions(rows, allowed)
    sql = f"SELECT d.id FROM document d JOIN project p ON p.id = d.project WHERE NOT d.deleted AND {where}"
    # Some of these are remembered: as a list of integers they would take four times the memory, and each search a copy.
    found = array("q", (row[0] for row in rows(sql, values)))
    total = rows("SELECT count(*) FROM document WHERE NOT deleted", ())[0][0]
    return None if len(found) == total else found


def permitted(rows: Rows, documents: Sequence[int], allowed: Filter) -> list[int]:
    """Those of the documents that pass."""
    where, values = _conditions(rows, allowed)
    sql = f"""SELECT d.id FROM document d JOIN project p ON p.id = d.project
              WHERE NOT d.deleted AND d.id {AMONG} AND {where}"""
    return [row[0] for row in rows(sql, (json.dumps(list(documents)), *values))]


def _simplest(rows: Rows, allowed: Filter) -> Filter:
    """The filter without what changes nothing: where no task has notes, none have to be left out."""
    if allowed.without_tasks and not rows("SELECT 1 FROM note WHERE task IS NOT NULL LIMIT 1", ()):
        return replace(allowed, without_tasks=False, task=None, task_projects=None)
    return allowed


def _conditions(rows: Rows, allowed: Filter) -> tuple[str, list[Any]]:
    conditions: list[str] = ["TRUE"]
    values: list[Any] = []
    for column, names in (("p.name", allowed.projects), ("d.source", allowed.sources)):
        if names is not None:
            conditions.append(f"{column} {AMONG}")
            values.append(json.dumps(sorted(names)))
    if allowed.path is not None:
        path = allowed.path.removeprefix("./").rstrip("/")
        if any(mark in path for mark in GLOB_MARKS):
            conditions.append("d.path GLOB ?")
            values.append(path)
        elif path not in ("", "."):
            # "/" is followed by "0": everything that begins with "path/".
            conditions.append("(d.path = ? OR (d.path > ? AND d.path < ?))")
            values += [path, path + "/", path + "0"]
    for condition, day in (("d.day >= ?", allowed.since), ("d.day <= ?", allowed.until)):
        if day is not None:
            conditions.append(condition)
            values.append(day)
    for condition, value in _of_notes(rows, allowed):
        conditions.append(condition)
        values += value
    return " AND ".join(conditions), values


def _of_notes(rows: Rows, allowed: Filter) -> list[tuple[str, list[Any]]]:
    """The conditions on what notes say of themselves."""
    found: list[tuple[str, list[Any]]] = [
        ("d.id IN (SELECT document FROM note_tag WHERE tag = ?)", [folded(tag)]) for tag in sorted(allowed.tags)
    ]
    if allowed.types is not None:
        found.append(_one_of(rows, "type", allowed.types))
    if allowed.category is not None:
        found.append(_one_of(rows, "category", [allowed.category]))
    if allowed.entity is not None:
        found.append(("d.id IN (SELECT document FROM note WHERE entity_key = ?)", [folded(allowed.entity)]))
    if allowed.without_tasks:
        others, values = "TRUE", []
        if allowed.task is not None:
            others, values = "NOT n.task = ?", [allowed.task]
            if allowed.task_projects is not None:
                others = f"NOT (n.task = ? AND t.name {AMONG})"
                values.append(json.dumps(sorted(allowed.task_projects)))
        sql = f"""d.id NOT IN (SELECT n.document FROM note n JOIN project t ON t.id = n.project
                  WHERE n.task IS NOT NULL AND {others})"""
        found.append((sql, values))
    return found


def spellings(rows: Rows, column: str, words: Iterable[str]) -> list[str]:
    """What to compare a column of notes with, NOCASE, for one of the words; that folds ASCII alone, so others are looked up as written."""
    wanted = {folded(word) for word in words}
    if not all(word.isascii() for word in wanted):
        written = rows(f"SELECT DISTINCT {column} FROM note WHERE {column} IS NOT NULL", ())
        wanted |= {row[0] for row in written if folded(row[0]) in wanted}
    return sorted(wanted)


def _one_of(rows: Rows, column: str, words: Iterable[str]) -> tuple[str, list[Any]]:
    """The condition that a note says one of the words."""
    sql = f"d.id IN (SELECT document FROM note WHERE {column} COLLATE NOCASE {AMONG})"
    return sql, [json.dumps(spellings(rows, column, words))]
