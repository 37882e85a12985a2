"""How often something was recalled, by day: whatever was recalled again later still counts on the days before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from confide_daemon.store import migrations
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.document_tables import _RECALLS_KEPT_H

DAY_S = 86_400.0
NOON = 20_000 * DAY_S + DAY_S / 2
"""2024-10-04 12:00 UTC."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "a.db", os.urandom(32), writer=True, now=NOON)
    yield opened
    opened.close()


def document(store: Store, project: str, path: str) -> int:
    return store.documents.save(project, path, "Text.\n", author="ann", now=NOON - 400 * DAY_S).id


def recall(store: Store, now: float, **uses: int) -> None:
    """`d3=2`: the document 3 twice, at that time."""
    with store.writing():
        store.documents.count_uses({int(name[1:]): count for name, count in uses.items()}, now=now)


def recalled(
    store: Store,
    *,
    projects: frozenset[str] | None = None,
    sources: frozenset[str] | None = None,
    since: float = 0.0,
    zone_s: int = 0,
) -> list[tuple[str, str, int]]:
    rows = store.overview.days(projects, sources, since=since, zone_s=zone_s, limit=100)
    return [(row.day, row.project, row.number) for row in rows if row.kind == "recalled"]


def test_each_day_has_its_own(store: Store) -> None:
    with store.writing():
        shop, other = document(store, "shop", "memory/a.md"), document(store, "aviary", "memory/b.md")
        said = document(store, "shop", "sessions/s.jsonl")
    assert (shop, other, said) == (1, 2, 3)
    recall(store, NOON - 2 * DAY_S, d1=3)
    recall(store, NOON - DAY_S, d1=1, d2=2)
    recall(store, NOON - DAY_S + 60, d1=1, d3=5)
    recall(store, NOON, d1=1)
    assert recalled(store) == [
        ("2024-10-04", "shop", 1),
        ("2024-10-03", "aviary", 2),
        ("2024-10-03", "shop", 7),
        ("2024-10-02", "shop", 3),
    ]
    assert recalled(store, since=NOON - DAY_S) == recalled(store)[:3]
    assert recalled(store, projects=frozenset({"aviary"})) == [("2024-10-03", "aviary", 2)]
    assert recalled(store, sources=frozenset({"memory"}))[2] == ("2024-10-03", "shop", 2)
    # Noon in UTC is the next day where it is thirteen hours later.
    assert [day for day, *_ in recalled(store, zone_s=13 * 3600)] == [
        *("2024-10-05", "2024-10-04", "2024-10-04", "2024-10-03")
    ]


def test_there_is_an_end_to_what_is_kept(store: Store) -> None:
    with store.writing():
        document(store, "shop", "memory/a.md")
    recall(store, NOON, d1=1)
    later = NOON + (_RECALLS_KEPT_H + 1) * 3600
    recall(store, later, d1=4)
    assert [number for *_, number in recalled(store)] == [4]


def test_what_was_counted_before_there_were_days_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each document once, on the day on which it was recalled last: more nobody knows."""
    path, key, steps = tmp_path / "s.db", os.urandom(32), migrations.migrations()
    with monkeypatch.context() as then:
        then.setattr(migrations, "migrations", lambda: [step for step in steps if step[0] < 16])
        old = Store.open(path, key, writer=True, now=NOON)
        with old.writing():
            for name in "ab":
                document(old, "shop", f"memory/{name}.md")
            for number, at in ((1, NOON), (2, NOON - DAY_S)):
                old.documents._rows("INSERT INTO document_use (document, uses, used_at) VALUES (?, 9, ?)", (number, at))
        old.close()
    new = Store.open(path, key, writer=True, now=NOON)
    assert recalled(new) == [("2024-10-04", "shop", 1), ("2024-10-03", "shop", 1)]
    new.close()
