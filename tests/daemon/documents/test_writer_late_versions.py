"""A machine's version that comes after its next one, as over a connection that has broken since: it is history, and undoes nothing."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from confide_daemon.documents import writer
from confide_daemon.documents.document_results import PutResult
from confide_daemon.embedding import LoadedModel
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared
from confide_memory.documents import text_hash

PATH = "memory/log.md"
BEGUN = "- begun\n"
FIRST = "- begun\n- one\n"
SECOND = "- begun\n- one\n- two\n"


class Laptop:
    """One machine's saves."""

    def __init__(self, space: Space) -> None:
        self._space = space

    async def put(self, text: str, *, base: int, sent: tuple[str, ...] = ()) -> PutResult:
        hashes = [text_hash(one) for one in sent]
        return await self._space.documents.put("p", PATH, text, base=base, sent=hashes, author="laptop")


@pytest.fixture
async def space(tmp_path: Path) -> AsyncIterator[Space]:
    key = os.urandom(32)
    opened = await Space.open(tmp_path / "s.db", key, SpaceShared(IndexSettings(), LoadedModel.none()), space_id="s")
    yield opened
    await opened.close()


@pytest.fixture
async def laptop(space: Space) -> Laptop:
    made = Laptop(space)
    await made.put(BEGUN, base=0)
    await space.documents.append("p", PATH, "- theirs", heading=None, author="desktop")
    return made


async def texts(space: Space) -> list[str]:
    """Every text there ever was."""
    newest = await space.documents.read("p", PATH)
    return [(await space.documents.read("p", PATH, revision=n)).text for n in range(1, newest.revision + 1)]


async def test_a_late_version_undoes_nothing_and_doubles_nothing(space: Space, laptop: Laptop) -> None:
    result = await laptop.put(SECOND, base=1, sent=(FIRST,))
    late = await laptop.put(FIRST, base=1)
    assert late.text == result.text
    assert late.merged
    assert sorted(result.text.splitlines()) == ["- begun", "- one", "- theirs", "- two"]
    assert FIRST in await texts(space)


async def test_one_that_came_before_is_kept_no_second_time(space: Space, laptop: Laptop) -> None:
    await laptop.put(FIRST, base=1)
    await laptop.put(SECOND, base=1, sent=(FIRST,))
    before = await texts(space)
    await laptop.put(FIRST, base=1)
    assert await texts(space) == before


async def test_a_person_may_go_back_to_what_was_before(space: Space, laptop: Laptop) -> None:
    """It names the version that it takes back, or has that one as its base."""
    result = await laptop.put(SECOND, base=1, sent=(FIRST,))
    back = await laptop.put(FIRST, base=1, sent=(FIRST, SECOND))
    assert sorted(back.text.splitlines()) == ["- begun", "- one", "- theirs"]
    result = await laptop.put(result.text, base=back.revision, sent=(SECOND,))
    back = await laptop.put("- begun\n- one\n", base=result.revision)
    assert back.text == FIRST


async def test_another_machine_s_versions_are_its_own(space: Space, laptop: Laptop) -> None:
    await laptop.put(SECOND, base=1, sent=(FIRST,))
    other = await space.documents.put("p", PATH, FIRST, base=1, author="tower")
    assert {"- one", "- two", "- theirs"} <= set(other.text.splitlines())


async def test_only_so_many_are_remembered(space: Space, laptop: Laptop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MOST_OVERTAKEN", 1)
    await laptop.put(SECOND, base=1, sent=(FIRST,))
    hashes = [text_hash(str(number)) for number in range(200)]
    for path in ("memory/a.md", "memory/b.md"):
        for sent in (hashes[:100], hashes[100:]):
            await space.documents.put("p", path, "text\n", base=0, sent=sent, author="laptop")
    late = await laptop.put(FIRST, base=1)
    assert "- two" in late.text or late.clash
