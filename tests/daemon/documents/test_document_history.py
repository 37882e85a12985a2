"""What was: clashes that are remembered, revisions that come back, deleted documents for ninety days."""

from __future__ import annotations

import asyncio
import os
import time
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Machine, Serving, machine, serving, text_hash
from tests.support.deadline import DEADLINE_S

from confide_crypto.errors import RequestError
from confide_daemon.embedding import LoadedModel
from confide_daemon.errors import NotFoundError
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared
from confide_daemon.store import migrations
from confide_daemon.store.database import connect
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.vector_scan import VectorScan

PATH = "memory/plan.md"
DAY_S = 86_400.0


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "data") as running:
        yield running


async def refused(work: Any, code: str) -> RequestError:
    with pytest.raises(RequestError) as caught:
        await work
    assert caught.value.code == code
    return caught.value


async def make_clash(one: Machine, other: Machine) -> dict[str, Any]:
    """Both change the same line from the same base."""
    await one.put(PATH, "# Plan\n\nstart on monday\n")
    await one.put(PATH, "# Plan\n\nstart on tuesday\n", base=1)
    return await other.put(PATH, "# Plan\n\nstart on friday\n", base=1)


async def status(laptop: Machine) -> dict[str, Any]:
    async with laptop.mcp() as client:
        found: dict[str, Any] = (await client.call_tool("memory_status", {})).structured_content
        return found


# ---------------------------------------------------------------- clashes


async def test_a_clash_is_remembered_until_its_marks_are_gone(daemon: Serving) -> None:
    """Both versions are in the text and in the history; status names the file and the way out, and forgets it once it is resolved."""
    async with machine(daemon, "desk", space="home") as desk, machine(daemon, "laptop", space="home") as laptop:
        await desk.attach()
        await laptop.attach()
        answer = await make_clash(desk, laptop)
        assert answer["clash"]
        assert "start on tuesday\n======= confide: laptop, revision 3\nstart on friday\n" in answer["text"]
        found = await desk.request("history", {"project": "proj", "path": PATH})
        assert [(entry["revision"], entry["author"], entry["clash"]) for entry in found["revisions"]] == [
            (4, "laptop", True),
            (3, "laptop", False),
            (2, "desk", False),
            (1, "desk", False),
        ]
        async with laptop.mcp() as client:
            told = (await client.call_tool("memory_status", {})).structured_content
            assert told["clashes"] == [{"project": "proj", "path": PATH, "revision": 4}]
            assert any(PATH in warning and "<<<<<<< confide" in warning for warning in told["warnings"])
            stored = await client.call_tool("memory_store", {"content": "- one more", "path": PATH})
            assert any("two versions" in warning for warning in stored.structured_content["warnings"])
            await laptop.put(PATH, "# Plan\n\nstart on friday\n", base=stored.structured_content["revision"])
            told = (await client.call_tool("memory_status", {})).structured_content
            assert told["clashes"] == []
            assert not any("two versions" in warning for warning in told["warnings"])


async def test_a_store_that_clashes_with_an_edit_says_so(daemon: Serving) -> None:
    """The agent replaces a section while a person edits it: both versions are in the file, and the answer warns."""
    async with machine(daemon, "desk", space="home") as desk:
        await desk.attach()
        await desk.put(PATH, "# Plan\n\nstart on monday\n")
        desk.files["proj", PATH] = "# Plan\n\nstart on friday\n"  # being edited: not sent yet
        async with desk.mcp() as client:
            arguments = {"content": "start on tuesday", "path": PATH, "heading": "Plan", "mode": "replace"}
            told = (await client.call_tool("memory_store", arguments)).structured_content
        assert any("two versions" in warning for warning in told["warnings"])
        assert "start on tuesday\n=======" in desk.files["proj", PATH]
        assert "start on friday\n>>>>>>>" in desk.files["proj", PATH]


async def test_clashes_are_told_to_those_who_may_see_them(daemon: Serving) -> None:
    """A caller of another project, or of transcripts alone, hears nothing of them."""
    async with machine(daemon, "desk", space="home") as desk, machine(daemon, "laptop", space="home") as laptop:
        await desk.attach()
        await laptop.attach()
        await make_clash(desk, laptop)
    async with machine(daemon, "other", space="home", projects={"web"}) as other:
        await other.attach("web")
        told = await status(other)
        assert told["clashes"] == []
        assert not any(PATH in warning for warning in told["warnings"])
    async with machine(daemon, "talker", space="home", sources={"sessions"}) as talker:
        await talker.attach()
        assert (await status(talker))["clashes"] == []


# ---------------------------------------------------------------- requests


async def test_a_deleted_document_comes_back_on_every_machine(daemon: Serving) -> None:
    """It is listed with the time until which it can; restored, it is a new revision that every machine of the space gets."""
    async with machine(daemon, "desk", space="home") as desk, machine(daemon, "laptop", space="home") as laptop:
        await desk.attach()
        await laptop.attach()
        await desk.put(PATH, "the heron fishes\n")
        await asyncio.wait_for(laptop.applied.get(), DEADLINE_S)
        await desk.request("remove", {"project": "proj", "path": PATH, "base": 1})
        assert (await asyncio.wait_for(laptop.applied.get(), DEADLINE_S))["text"] is None
        (item,) = (await laptop.request("deleted", {"project": "proj"}))["documents"]
        assert (item["path"], item["revision"], item["bytes"], item["author"]) == (PATH, 1, 17, "desk")
        assert item["restorableUntil"] > item["time"]
        desk.files.clear()
        answer = await laptop.request("restore", {"project": "proj", "path": PATH})
        assert (answer["revision"], answer["hash"], answer["changed"]) == (3, text_hash("the heron fishes\n"), True)
        for one in (desk, laptop):
            brought = await asyncio.wait_for(one.applied.get(), DEADLINE_S)
            assert (brought["revision"], brought["text"]) == (3, "the heron fishes\n")
        assert (await laptop.request("deleted", {"project": "proj"}))["documents"] == []
        async with laptop.mcp() as client:
            found = await client.call_tool("memory_search", {"query": "heron"})
            assert [hit["path"] for hit in found.structured_content["results"]] == [PATH]


async def test_any_revision_can_be_made_the_newest(daemon: Serving) -> None:
    """The one that is named, or the last one with another text; the present one again changes nothing."""
    async with machine(daemon, "desk", space="home") as desk:
        await desk.attach()
        for number, text in enumerate(("one\n", "two\n", "three\n")):
            await desk.put(PATH, text, base=number)
        here = {"project": "proj", "path": PATH}
        assert (await desk.request("restore", {**here, "revision": 1}))["revision"] == 4
        assert (await desk.request("pull", here))["text"] == "one\n"
        assert (await desk.request("restore", {**here, "revision": 1}))["changed"] is False
        assert (await desk.request("restore", here))["hash"] == text_hash("three\n")
        found = (await desk.request("history", {**here, "limit": 2}))["revisions"]
        assert [entry["revision"] for entry in found] == [5, 4]


async def test_what_cannot_be_restored_is_said(daemon: Serving) -> None:
    """No such document, no such revision, one that deleted it, no other text, and numbers that are none."""
    async with machine(daemon, "desk", space="home") as desk:
        await desk.attach()
        here = {"project": "proj", "path": PATH}
        await refused(desk.request("history", here), "not_found")
        await refused(desk.request("restore", here), "not_found")
        await desk.put(PATH, "one\n")
        await refused(desk.request("restore", here), "not_found")
        await refused(desk.request("restore", {**here, "revision": 9}), "not_found")
        await desk.request("remove", {**here, "base": 1})
        await refused(desk.request("restore", {**here, "revision": 2}), "not_found")
        for wrong in (0, True, "1", 2**60):
            await refused(desk.request("restore", {**here, "revision": wrong}), "invalid")
            await refused(desk.request("history", {**here, "limit": wrong}), "invalid")
        await refused(desk.request("history", {**here, "limit": 101}), "invalid")
        await refused(desk.request("restore", {"project": "proj", "path": "sessions/x.md"}), "invalid")


async def test_the_past_is_open_to_whom_the_present_is(daemon: Serving) -> None:
    """Another project's is not; who may only read restores nothing."""
    async with machine(daemon, "desk", space="home") as desk:
        await desk.attach()
        await desk.put(PATH, "one\n")
        await desk.request("remove", {"project": "proj", "path": PATH, "base": 1})
    here = {"project": "proj", "path": PATH}
    async with machine(daemon, "reader", space="home", scope="read") as reader:
        await reader.attach()
        assert (await reader.request("deleted", {"project": "proj"}))["documents"]
        assert (await reader.request("history", here))["revisions"]
        await refused(reader.request("restore", here), "denied")
    async with machine(daemon, "talker", space="home", sources={"sessions"}) as talker:
        await talker.attach()
        assert (await talker.request("deleted", {"project": "proj"}))["documents"] == []
        await refused(talker.request("history", here), "denied")
    async with machine(daemon, "web", space="home", projects={"web"}) as web:
        await web.attach("web", "global")
        for op in ("deleted", "history", "restore"):
            await refused(web.request(op, here), "invalid")  # it cannot attach the project either
            await refused(web.request(op, {**here, "project": "global"}), "denied")


# ---------------------------------------------------------------- the sweep


async def nothing_known(space: Space, path: str) -> None:
    """Wait until the past of a document is gone."""
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(NotFoundError):  # noqa: PT012 - it is asked until it is so
            while await space.history.revisions("p", path, limit=9):  # noqa: ASYNC110 - the sweep is nobody's to tell of
                await asyncio.sleep(0.01)


async def test_deleted_texts_are_removed_after_their_time(tmp_path: Path) -> None:
    """At the second opening after it; what is there keeps its history, and a machine that was away loses nothing by old numbers."""
    path, key = tmp_path / "s.db", os.urandom(32)

    async def opened(days_later: float, deleted_days: int = 90) -> Space:
        return await Space.open(
            path,
            key,
            SpaceShared(
                IndexSettings(),
                LoadedModel.none(),
                deleted_days=deleted_days,
                clock=lambda: time.time() + days_later * DAY_S,
            ),
            space_id="s",
        )

    space = await opened(0)
    for name in ("gone.md", "kept.md", *(f"many/{number}.md" for number in range(70))):
        await space.documents.put("p", name, "one\n", base=0, author="a")
        await space.documents.put("p", name, "two\n", base=1, author="a")
    await space.documents.remove("p", "gone.md", base=2, author="a")
    for number in range(70):
        await space.documents.remove("p", f"many/{number}.md", base=2, author="a")
    await space.close()

    space = await opened(89)
    assert await space.history.sweep() == 0
    assert len(await space.history.list_deleted("p")) == 71
    await space.close()

    # A clock that is years ahead for a while makes nothing old, however often it is looked at within a day.
    for days_later in (1000, 1000.5, 1):
        space = await opened(days_later)
        assert await space.history.sweep() == 0
        await space.close()
    space = await opened(1)
    assert len(await space.history.list_deleted("p")) == 71
    await space.close()

    space = await opened(91)
    assert await space.history.list_deleted("p") == []  # though it takes a second look at the clock until it is gone
    assert await space.history.sweep() == 0
    await space.close()

    space = await opened(92)
    assert await space.history.list_deleted("p") == []  # nothing is offered that the sweep may be removing
    for name in ("gone.md", *(f"many/{number}.md" for number in range(70))):
        await nothing_known(space, name)
    with pytest.raises(NotFoundError):
        await space.documents.restore("p", "gone.md", revision=1, author="a")
    assert [entry.number for entry in await space.history.revisions("p", "kept.md", limit=9)] == [2, 1]
    # A machine that was away all the time has the file still, from revision 2: it brings it back, as a revision that is no older one's.
    compared = await space.documents.compare("p", [("gone.md", text_hash("two\n"), 2)], [])
    assert compared.send == ["gone.md"]
    assert (await space.documents.put("p", "gone.md", "two\n", base=2, author="b")).revision == 4
    await space.close()


# ---------------------------------------------------------------- a database of the first version


def test_a_database_of_the_first_schema_is_upgraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its documents keep their history, whose sizes were not counted then; steps that were left out before are made up for."""
    path, key = tmp_path / "s.db", os.urandom(32)
    steps = migrations.migrations()
    with monkeypatch.context() as first:
        first.setattr(migrations, "migrations", lambda: [step for step in steps if step[0] == 1])
        Store.open(path, key, writer=True, now=1.0).close()
    raw = connect(path, key, writer=True)
    raw.execute("INSERT INTO project (id, name) VALUES (1, 'p')")
    raw.execute(
        """INSERT INTO document (id, project, path, revision, hash, author, updated_at, source, day)
           VALUES (1, 1, 'a.md', 1, 'h', 'ann', 5.0, 'memory', '1970-01-01'),
                  (2, 1, '2026-02-31.md', 1, 'h', 'ann', 86405.0, 'memory', '2026-02-31')"""
    )
    sql = "INSERT INTO revision (document, number, hash, text, author, created_at) VALUES (1, 1, 'h', ?, 'ann', 5.0)"
    raw.execute(sql, (zlib.compress("größe\n".encode()),))
    raw.close()
    for present in (steps[:1] + steps[2:], steps):  # a daemon that lacked the second step, and this one
        with monkeypatch.context() as then:
            then.setattr(migrations, "migrations", lambda present=present: present)
            Store.open(path, key, writer=True, now=2.0).close()
    store = Store.open(path, key, writer=True, now=3.0, scan=VectorScan())
    (entry,) = store.documents.revisions(1, limit=9)
    assert (entry.number, entry.bytes, entry.clash, entry.deleted) == (1, 8, False, False)
    assert [row.day for row in store.documents.list_documents(None)] == [
        "1970-01-02",
        "1970-01-01",
    ]  # February has no 31st
    with store.writing():
        row = store.documents.save("p", "a.md", "<<<<<<< confide: x\n", author="ann", now=6.0)
    assert (row.revision, row.clash) == (2, True)
    assert store.documents.clashing(None, limit=9) == [("p", "a.md", 2)]
    store.close()
