"""What a person has forgotten: gone at once with all that was made of it, taken from nobody again, and no machine is told to delete."""

from __future__ import annotations

import os
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Serving, machine, serving, text_hash

from confide_crypto.errors import RequestError
from confide_daemon.documents.document_history import FORGOTTEN_AT_ONCE, MOST_NAMES
from confide_daemon.embedding import LoadedModel
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.errors import BadNameError, ForgottenError
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.sealing.unsealed_texts import SpaceTexts
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared
from confide_daemon.store.database import connect

KEY = os.urandom(32)
DIARY = "Private/Diary.md"


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "data") as running:
        yield running


async def refused(work: Any, code: str) -> None:
    with pytest.raises(RequestError) as caught:
        await work
    assert caught.value.code == code


async def opened(path: Path) -> Space:
    embedder = LoadedModel.ready(HashedEmbedder(64))
    return await Space.open(path / "s.db", KEY, SpaceShared(IndexSettings(), embedder), space_id="s")


def held(path: Path) -> bytes:
    """All that stands in the tables of a space, revisions unpacked."""
    connection = connect(path / "s.db", KEY, writer=False)
    found = []
    tables = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
    )
    for (table,) in list(tables):
        for row in connection.execute(f'SELECT * FROM "{table}"'):
            for value in row:
                found.append(value if isinstance(value, bytes) else str(value).encode())
                if isinstance(value, bytes):
                    try:
                        found.append(zlib.decompress(value))
                    except zlib.error:
                        continue
    connection.close()
    return b"\n".join(found)


async def test_nothing_of_a_text_is_left(tmp_path: Path) -> None:
    """In no table: pieces, words, vectors, revisions, hashes. After a restart it stays so."""
    space = await opened(tmp_path)
    for number in range(3):
        await space.documents.put("p", DIARY, f"# Diary\n\nThe zanzibar plan {number}.\n", base=number, author="a")
    await space.documents.put("p", "Private/old.md", "# Old\n\nThe zanzibar of old.\n", base=0, author="a")
    await space.documents.remove("p", "Private/old.md", base=1, author="a")
    await space.documents.put("p", "memory/a.md", "# A\n\nStays.\n", base=0, author="a")
    step = await space.documents.forget("p", ["Private"], author="a", reaches=lambda _path: True)
    assert (sorted(step.documents), step.total, step.is_complete) == ([DIARY, "Private/old.md"], 2, True)
    found = await space.index.searcher.search(SearchQuery("zanzibar", min_score=0.0))
    assert DIARY not in [hit.path for hit in found.hits]
    await SpaceTexts(space.threads, space.index.indexer, space.index.searcher).erase()
    await space.close()
    everything = held(tmp_path)
    assert b"zanzibar" not in everything
    assert not any(text_hash(f"# Diary\n\nThe zanzibar plan {n}.\n").encode() in everything for n in range(3))
    assert b"Stays." in everything
    space = await opened(tmp_path)
    with pytest.raises(ForgottenError):
        await space.documents.put("p", DIARY, "# Diary\n\nAgain.\n", base=0, author="b")
    with pytest.raises(ForgottenError):
        await space.documents.append("p", "Private/new.md", "- x\n", heading=None, author="b")
    await space.documents.put("other", DIARY, "# Of another project\n", base=0, author="b")
    assert await space.documents.take_again("p", ["./Private/"]) == ("Private",)
    assert (await space.documents.put("p", DIARY, "# Diary\n\nAgain.\n", base=3, author="b")).changed
    await space.close()


async def test_machines_keep_their_files_and_are_asked_for_none(daemon: Serving) -> None:
    """Whatever they hold of it: as it was, edited, never sent, or deleted."""
    async with machine(daemon, "desk", space="home") as desk, machine(daemon, "laptop", space="home") as laptop:
        for one in (desk, laptop):
            await one.attach()
        await desk.put("memory/a.md", "one\n")
        here = {"project": "proj", "paths": ["memory/*.md"]}
        look = await desk.request("forget", {**here, "dryRun": True})
        assert (look["documents"], look["total"], look["complete"]) == (["memory/a.md"], 1, False)
        assert (await desk.request("forget", here))["complete"]
        entries = [["memory/a.md", text_hash("one\n"), 1], ["memory/b.md", text_hash("new\n"), 0]]
        edited = [["memory/a.md", text_hash("two\n"), 1]]
        for listed in (entries, edited):
            answer = await laptop.request("compare", {"project": "proj", "entries": listed, "gone": []})
            assert answer["forgotten"] == [path for path, *_ in listed]
            assert [answer[what] for what in ("send", "pull", "drop", "adopt")] == [[], [], [], []]
        await refused(laptop.put("memory/a.md", "two\n", base=1), "denied")
        await refused(laptop.request("restore", {"project": "proj", "path": "memory/a.md"}), "not_found")
        await refused(laptop.request("history", {"project": "proj", "path": "memory/a.md"}), "not_found")
        assert (await laptop.request("deleted", {"project": "proj"}))["documents"] == []
        undone = await laptop.request("forget", {**here, "undo": True})
        assert undone["documents"] == ["memory/*.md"]
        answer = await laptop.request("compare", {"project": "proj", "entries": entries, "gone": []})
        assert sorted(answer["send"]) == ["memory/a.md", "memory/b.md"]


async def test_much_is_forgotten_in_steps(daemon: Serving) -> None:
    """So that no write of others waits long; and of a whole project nothing more is taken."""
    count = FORGOTTEN_AT_ONCE + 3
    async with machine(daemon, "desk", space="home") as desk:
        await desk.attach()
        for number in range(count):
            await desk.put(f"memory/{number}.md", "one\n")
        body = {"project": "proj", "paths": []}
        first, second = await desk.request("forget", body), await desk.request("forget", body)
        assert (first["total"], len(first["documents"]), first["complete"]) == (count, FORGOTTEN_AT_ONCE, False)
        assert (second["total"], len(second["documents"]), second["complete"]) == (3, 3, True)
        await refused(desk.put("anything.md", "one\n"), "denied")
        assert (await desk.request("projects", {"project": "proj"}))["projects"] == []


async def test_who_may_write_it_may_have_it_forgotten(daemon: Serving) -> None:
    """And nobody else, nor by names that are none."""
    body = {"project": "proj", "paths": ["memory"]}
    async with machine(daemon, "desk", space="home") as desk:
        await desk.attach()
        await desk.put("memory/a.md", "one\n")
        for wrong in ([""], [7], ["x" * 600], "memory", None):
            await refused(desk.request("forget", {"project": "proj", "paths": wrong}), "invalid")
    for name, options in (
        ("reader", {"scope": "read"}),
        ("talker", {"sources": {"sessions"}}),
        ("web", {"projects": {"web"}}),
    ):
        async with machine(daemon, name, space="home", **options) as other:
            await other.attach("web" if name == "web" else "proj", "global")
            await refused(other.request("forget", body), "denied")
            await refused(other.request("forget", {**body, "undo": True}), "denied")
            await refused(other.request("forget", {**body, "dryRun": True}), "denied")


async def test_names_are_no_more_than_are_looked_through(tmp_path: Path) -> None:
    """Each write compares its path with all of them."""
    space = await opened(tmp_path)
    names = [f"a/{number}.md" for number in range(MOST_NAMES)]
    await space.documents.forget("p", names, author="a", reaches=lambda _path: True)
    await space.documents.forget("p", names[:1], author="a", reaches=lambda _path: True)
    with pytest.raises(BadNameError, match="forgotten"):
        await space.documents.forget("p", ["b.md"], author="a", reaches=lambda _path: True)
    await space.documents.forget('p"', ["b.md"], author="a", reaches=lambda _path: True)
    assert len(await space.documents.take_again("p", [""])) == MOST_NAMES
    assert await space.documents.take_again('p"', ["b.md"]) == ("b.md",)
    await space.close()
