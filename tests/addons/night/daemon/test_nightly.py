"""What is looked for in a memory at night: it is counted, told once, and nothing is changed by it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import pytest
from tests.support.clock import Clock
from tests.support.daemon.parts import parts
from tests.support.deadline import DEADLINE_S
from tests.support.providers.likeness import LikenessEmbedder

from confide_daemon.embedding import LoadedModel
from confide_daemon.notes.note_edit import Draft
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceHost, SpaceShared
from confide_memory.classes import AGENT
from confide_memory.note import Relation
from confide_night.daemon import nightly
from confide_night.daemon.nightly import DAY_S, Findings, Nightly

NOON = datetime(2026, 11, 25, 12).astimezone().timestamp()


class Outside(SpaceHost):
    """Three credentials in clear, and a backup that is not proven."""

    def around(self, _space_id: str) -> tuple[int | None, bool | None]:
        return 3, False


@pytest.fixture
def clock() -> Clock:
    return Clock(NOON)


@pytest.fixture
async def space(tmp_path: Path, clock: Clock) -> AsyncIterator[Space]:
    found = await Space.open(
        tmp_path / "space.db",
        b"\x11" * 32,
        SpaceShared(IndexSettings(), LoadedModel.ready(LikenessEmbedder()), clock=clock, parts=parts()),
        space_id="s",
        host=Outside(),
    )
    yield found
    await found.close()


async def note(space: Space, text: str, *, created: float, to: str | None = None) -> str:
    relations = (Relation("see_also", to),) if to else ()
    draft = Draft(text, created, title=text[:20], relations=relations)
    return (await space.notes.store(draft, project="shop", author="laptop", by=AGENT)).row.id


async def test_everything_is_counted_and_nothing_changed(space: Space, clock: Clock) -> None:
    old, new = clock.now - 200 * DAY_S, clock.now - DAY_S
    await note(space, "We deploy on Tuesdays from the main branch with the script in tools.", created=new)
    await note(space, "We deploy on Tuesdays from the main branch with the script in tools!", created=old)
    await note(space, "Another thing entirely.", created=new, to="mem_nobody_1700000000_0f0f0f0f")
    await space.wait_indexed(timeout_s=DEADLINE_S)
    before = await space.status(None)
    found = await space.part(Nightly).look()
    assert (found.duplicates, found.unused, found.strays, found.clashes, found.vectors) == (1, 1, 1, 0, 0)
    (line,) = found.lines()
    for said in (
        "credentials in clear: 3",
        "nearly the same as newer ones: 1",
        "neither used nor changed: 1",
        "relations to deleted notes: 1",
        "no proven backup",
    ):
        assert said in line
    after = await space.status(None)
    assert (after.files, after.sources, after.clashes) == (before.files, before.sources, before.clashes)
    assert await space.part(Nightly).newest() == found
    clock.now += DAY_S
    assert await space.part(Nightly).look() == await space.part(Nightly).newest()


async def test_a_night_without_findings_says_nothing() -> None:
    assert Findings(NOON, 0, 0, 0, 0, 0).lines() == []
    assert Findings(NOON, 0, 0, 0, 0, 0, 0, True).lines() == []


async def test_it_is_looked_once_a_night_and_not_by_day(space: Space, clock: Clock) -> None:
    """Half past three by the machine's own zone; up to three hours late, as where a laptop slept."""
    half_past = datetime(2026, 11, 26, 3, 30).astimezone().timestamp()
    assert nightly.until_next(NOON) == half_past - NOON
    assert nightly.until_next(half_past) == DAY_S
    assert not nightly.is_due(half_past - 1, 0)
    assert nightly.is_due(half_past, half_past - DAY_S)
    assert not nightly.is_due(half_past + 60, half_past)
    assert nightly.is_due(half_past + nightly.LATE_S - 1, 0)
    assert not nightly.is_due(half_past + nightly.LATE_S, 0)
    assert await space.part(Nightly).newest() is None
    await space.part(Nightly).close()
    clock.now = half_past
    space.part(Nightly).start()
    async with asyncio.timeout(DEADLINE_S):
        while await space.part(Nightly).newest() is None:
            pass  # each look at the database lets the others go on
