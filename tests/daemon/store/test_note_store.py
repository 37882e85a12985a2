"""What a store tells of many notes: pages and totals by every filter are those of a plain look at each note."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from confide_daemon.store.rows import NoteFilter, NoteRow
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables import note_listing as listing
from confide_daemon.store.tables.note_listing import SORTS
from confide_memory.note import Note

NOW = 1_700_000_000.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "a.db", os.urandom(32), writer=True, now=NOW)
    yield opened
    opened.close()


def a_note(number: int, **fields: Any) -> Note:
    made = Note(
        id=f"mem_n{number}_1_{number:08x}",
        path_id=f"mem_p{number}_0_{number:08x}",
        title=f"n{number}",
        body="",
        scope="project",
        created=NOW,
        updated=NOW,
    )
    return replace(made, **fields)


def put(store: Store, note: Note, project: str = "proj", path: str | None = None) -> int:
    """The note's document."""
    folder = f"tasks/{note.task_id}" if note.task_id else "notes"
    with store.writing():
        row = store.documents.save(project, path or f"memory/{folder}/{note.title}.md", "x", author="ann", now=NOW)
        store.notes.replace(row, note, now=NOW)
    return row.id


def fill(store: Store, count: int) -> list[tuple[str, Note]]:
    rng = random.Random(count)
    made = []
    for number in range(count):
        project = rng.choice(["proj", "proj", "proj", "global", "other"])
        note = a_note(
            number,
            task_id=rng.choice([None, None, None, "t1", "t2"]),
            type=rng.choice([None, "episodic", "Episodic", "runbook"]),
            category=rng.choice([None, "facts", "people"]),
            entity=rng.choice([None, "The  Gateway", "auth"]),
            status=rng.choice([None, "active", "DRAFT"]),
            tags=tuple(rng.sample(["a", "B", "a b", "c%", "d_"], rng.randint(0, 3))),
            importance=rng.choice([0.25, 0.5, 1.0]),
            created=NOW + rng.randint(0, 50),
            updated=NOW + rng.randint(0, 50),
        )
        made.append((project, note))
        put(store, note, project)
    return made


def passes(project: str, note: Note, wanted: NoteFilter) -> bool:
    """The filter, said plainly."""
    of_task = note.task_id == wanted.task_id and (wanted.task_projects is None or project in wanted.task_projects)
    is_in = note.task_id is None or not wanted.without_tasks or of_task
    words = [
        (note.category, wanted.category),
        (note.status, wanted.status),
        (" ".join(note.entity.split()) if note.entity else None, wanted.entity),
    ]
    assert note.updated is not None
    return (
        (wanted.projects is None or project in wanted.projects)
        and is_in
        and (not wanted.types or (note.type or "").lower() in {one.lower() for one in wanted.types})
        and all(asked is None or (said or "").lower() == asked.lower() for said, asked in words)
        and {tag.lower() for tag in wanted.tags} <= {tag.lower() for tag in note.tags}
        and (wanted.since is None or note.updated >= wanted.since)
        and (wanted.until is None or note.updated < wanted.until)
    )


KEYS: dict[str, Callable[[NoteRow], Any]] = {
    "updated": lambda row: row.updated_at,
    "created": lambda row: row.created_at,
    "importance": lambda row: (row.importance, row.updated_at),
    "usage": lambda row: (row.uses, row.updated_at),
}


# Both the walk along an order and the putting in order are used, whichever the numbers make it.
@pytest.mark.parametrize(("walked", "ordered"), [(2000, 2000), (0, 2000), (0, 3), (5, 3)])
def test_pages_are_those_of_a_plain_look(
    store: Store, monkeypatch: pytest.MonkeyPatch, walked: int, ordered: int
) -> None:
    monkeypatch.setattr(listing, "WALKED", walked)
    monkeypatch.setattr(listing, "ORDERED", ordered)
    made = fill(store, 120)
    rng = random.Random(6)
    for _ in range(60):
        choices: dict[str, list[Any]] = {
            "projects": [None, frozenset({"proj"}), frozenset({"proj", "global"}), frozenset({"nowhere"}), frozenset()],
            "without_tasks": [True, True, True, False],
            "task_id": [None, None, "t1"],
            "task_projects": [None, frozenset({"proj"})],
            "types": [(), (), ("episodic",), ("EPISODIC", "runbook"), ("a", "b", "c")],
            "category": [None, None, "Facts"],
            "entity": [None, None, "the gateway"],
            "status": [None, None, "draft"],
            "tags": [(), (), ("A",), ("a", "b"), ("a b",), ("%",), ("_",)],
            "since": [None, None, NOW + 20],
            "until": [None, None, NOW + 40],
        }
        wanted = NoteFilter(**{name: rng.choice(values) for name, values in choices.items()})
        expected = {note.title for project, note in made if passes(project, note, wanted)}
        sort, limit = rng.choice(list(SORTS)), rng.choice([1, 7, 100])
        rows: list[NoteRow] = []
        with store.reading():
            while True:
                page = store.note_listing.page(wanted, sort=sort, limit=limit, offset=len(rows))
                assert page.total == len(expected), wanted
                rows += [row for row, _ in page.notes]
                if len(page.notes) < limit:
                    break
        assert {row.title for row in rows} == expected
        assert len(rows) == len(expected)
        keys = [KEYS[sort](row) for row in rows]
        assert keys == sorted(keys, reverse=True)


def test_uses_count_in_lists_and_stay_with_a_note_that_is_read_again(store: Store) -> None:
    quiet, used = a_note(0), a_note(1)
    documents = [put(store, quiet), put(store, used)]
    for times in (1, 5):
        with store.writing():
            store.documents.count_uses({documents[1]: times}, now=NOW)
    put(store, used)
    page = store.note_listing.page(NoteFilter(), sort="usage", limit=10, offset=0)
    assert [(row.title, row.uses) for row, _ in page.notes] == [("n1", 6), ("n0", 0)]
    # Counted before it was a note that anybody knew.
    with store.writing():
        store.notes.replace(store.documents.by_id([documents[1]])[0], None, now=NOW)
        store.documents.count_uses({documents[1]: 1}, now=NOW)
        store.notes.replace(store.documents.by_id([documents[1]])[0], used, now=NOW)
    page = store.note_listing.page(NoteFilter(), sort="usage", limit=1, offset=0)
    assert [row.uses for row, _ in page.notes] == [7]


def test_two_notes_never_have_one_id(store: Store) -> None:
    first = a_note(0)
    put(store, first)
    # A copy, and a file whose own name gives the id that another one claims.
    put(store, replace(a_note(1), id=first.id))
    put(store, replace(a_note(2), id=first.id, path_id=a_note(1).path_id))
    found = [row for row, _ in store.note_listing.page(NoteFilter(), sort="created", limit=10, offset=0).notes]
    assert len({row.id for row in found}) == 3
    assert {row.title: row.problems for row in found} == {"n0": 0, "n1": 1, "n2": 1}
    for row in found:
        assert store.notes.find(row.id, None) == row


def test_deleted_notes_are_listed_last_first_until_they_are_forgotten(store: Store) -> None:
    for number, project in enumerate(("proj", "proj", "other")):
        put(store, a_note(number), project)
        with store.writing():
            row = store.documents.save(project, f"memory/notes/n{number}.md", None, author="ann", now=NOW + number)
            store.notes.replace(row, None, now=NOW)
    with store.writing():
        store.documents.save("proj", "memory/plan.md", "x", author="ann", now=NOW)
        store.documents.save("proj", "memory/plan.md", None, author="ann", now=NOW)
    assert [row.path[-4] for row in store.documents.deleted_notes(None, limit=10)] == ["2", "1", "0"]
    assert [row.path[-4] for row in store.documents.deleted_notes(frozenset({"proj"}), limit=1)] == ["1"]
    with store.writing():
        store.documents.forget_deleted(NOW + 1, limit=10)
    assert [row.path[-4] for row in store.documents.deleted_notes(frozenset({"proj"}), limit=10)] == ["1"]


def test_entities_and_counts_are_those_of_a_plain_look_at_each_note(store: Store) -> None:
    rng = random.Random(8)
    made: list[tuple[str, Note]] = []
    for number in range(120):
        project = rng.choice(["proj", "other", "global"])
        note = replace(
            a_note(number),
            entity=rng.choice(["Ann", "ann", "ANN ", "Bo", None]),
            type=rng.choice(["episodic", "Episodic", None]),
            category=rng.choice(["facts", None]),
            task_id=rng.choice(["t1", None, None]),
            created=float(rng.randint(1, 50)),
            updated=float(rng.randint(50, 99)),
            problems=("odd",) * rng.choice([0, 0, 1]),
        )
        put(store, note, project)
        made.append((project, note))
    for projects in (None, frozenset({"proj"}), frozenset({"proj", "global"}), frozenset({"nobody"})):
        seen = [(project, note) for project, note in made if projects is None or project in projects]
        for tasks in (None, True, False):
            groups: dict[tuple[str, str, bool], list[Note]] = {}
            for project, note in seen:
                if note.entity and (tasks is None or tasks == (note.task_id is not None)):
                    key = (note.entity.strip().casefold(), project, note.task_id is not None)
                    groups.setdefault(key, []).append(note)
            found = store.entities.list_entities(projects, tasks=tasks, type=None)
            assert {(one.name.strip().casefold(), one.project, one.is_of_tasks): one[3:] for one in found} == {
                key: (len(notes), min(n.created or 0 for n in notes), max(n.updated or 0 for n in notes))
                for key, notes in groups.items()
            }
            assert [one.written for one in found] == sorted((one.written for one in found), reverse=True)
        counted = store.entities.note_counts(projects)
        assert counted.total == len(seen)
        assert counted.with_problems == sum(bool(note.problems) for _, note in seen)
        assert counted.by_type == dict(Counter(note.type or "" for _, note in seen))
        assert counted.by_category == dict(Counter(note.category or "" for _, note in seen))
        assert counted.created_at == min((note.created or 0 for _, note in seen), default=None)
        assert counted.updated_at == max((note.updated or 0 for _, note in seen), default=None)
        assert store.notes.count(projects, most=2) == min(2, len(seen))


def test_entities_are_counted_once_while_nobody_writes(store: Store) -> None:
    put(store, replace(a_note(0), entity="Ann"))
    with store.reading():
        first = store.entities.list_entities(None, tasks=False, type=None)
    with store.reading():
        assert store.entities.list_entities(None, tasks=False, type=None) is first
    put(store, replace(a_note(1), entity="Ann"))
    with store.reading():
        assert [one.written for one in store.entities.list_entities(None, tasks=False, type=None)] == [2]


def test_a_note_that_came_back_was_made_when_it_was_made(store: Store) -> None:
    """Its file says nothing of it."""
    note = a_note(0, created=None, updated=None)
    put(store, note)
    with store.writing():
        row = store.documents.save("proj", "memory/notes/n0.md", None, author="ann", now=NOW + 10)
        store.notes.replace(row, None, now=NOW + 10)
        row = store.documents.save("proj", "memory/notes/n0.md", "y", author="ann", now=NOW + 20)
        store.notes.replace(row, note, now=NOW + 20)
    ((found, _),) = store.note_listing.page(NoteFilter(), sort="created", limit=1, offset=0).notes
    assert (found.created_at, found.updated_at) == (NOW, NOW + 20)
