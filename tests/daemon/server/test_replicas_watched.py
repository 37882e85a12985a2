"""Who hears of a new revision, and folders that are compared by digests."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Machine, Serving, machine, serving, text_hash
from tests.support.deadline import DEADLINE_S

from confide_crypto.errors import RequestError
from confide_daemon.server import replicas
from confide_memory.documents import BUCKETS, bucket_of, digests


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "data") as running:
        yield running


async def attach(connected: Machine, *, watches: object) -> None:
    """Attach the project, saying whether its folder is watched over this connection."""
    await connected.request("attach", {"project": "proj", "machine": "box", "toolsets": ["core"], "watches": watches})


async def test_only_connections_that_watch_hear_of_others_revisions(daemon: Serving) -> None:
    """A machine with three connections is told once; what is attached again counts from then on."""
    identity = daemon.enroll("laptop")
    async with (
        machine(daemon, "desk", space="laptop") as writer,
        Machine(await daemon.connect(identity)) as watching,
        Machine(await daemon.connect(identity)) as waiting,
        Machine(await daemon.connect(identity)) as old,
    ):
        await writer.attach()
        await attach(watching, watches=True)
        await attach(waiting, watches=False)
        await old.attach()  # which says nothing, as programs before this did
        await writer.put("memory/a.md", "one\n")
        async with asyncio.timeout(10):
            assert (await watching.applied.get())["text"] == "one\n"
            assert (await old.applied.get())["text"] == "one\n"
        await attach(watching, watches=False)
        await attach(waiting, watches=True)
        await writer.put("memory/b.md", "two\n")
        async with asyncio.timeout(10):
            assert (await waiting.applied.get())["path"] == "memory/b.md"
            assert (await old.applied.get())["path"] == "memory/b.md"
        assert watching.applied.empty()
        assert waiting.applied.empty()


async def test_a_store_is_written_back_to_a_connection_that_does_not_watch(daemon: Serving) -> None:
    """The caller's own file is on disk when its tool answers."""
    async with machine(daemon) as caller:
        await attach(caller, watches=False)
        async with caller.mcp() as client:
            result = await client.call_tool("memory_store", {"content": "hello", "path": "memory/a.md"})
        assert not result.is_error
        assert caller.files["proj", "memory/a.md"] == "hello\n"


async def test_a_machine_that_is_far_behind_compares(daemon: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for it is bounded, by number and by size: beyond that it has the rest by a comparison, and is not left behind for days."""
    monkeypatch.setattr(replicas, "MAX_WAITING_CHARS", 2 * 1000)
    is_awake = asyncio.Event()
    async with (
        machine(daemon, "desk", space="laptop") as writer,
        machine(daemon, "laptop", space="laptop") as behind,
    ):
        await writer.attach()
        await behind.attach()
        apply = behind.apply

        async def slow(body: dict[str, Any]) -> dict[str, Any]:
            await is_awake.wait()
            return await apply(body)

        behind.apply = slow
        for number in range(6):
            await writer.put(f"memory/{number}.md", f"{number}" * 999 + "\n")
        assert behind.scans == []
        is_awake.set()
        async with asyncio.timeout(DEADLINE_S):
            while not behind.scans:  # noqa: ASYNC110 - the machine in the test has no event for it
                await asyncio.sleep(0.01)
        assert behind.scans == [{"force": False}]
        assert 1 <= len(behind.files) <= 3


async def test_a_comparison_of_what_is_not_here_costs_the_daemon_nothing(daemon: Serving) -> None:
    """Also of a machine that may only read: it names hundreds of thousands of files that nobody has, and is remembered with none."""
    reader = daemon.enroll("reader", space="laptop", scope="read")
    async with machine(daemon, "laptop") as writer, Machine(await daemon.connect(reader)) as caller:
        await writer.attach()
        await writer.put("memory/a.md", "one\n")
        await caller.attach()
        before = {id(one) for one in gc.get_objects() if type(one) is replicas.ConfirmedRevision}
        for round_ in range(5):
            entries = [[f"memory/{round_}/{number}.md", text_hash(""), 7] for number in range(1000)]
            await caller.request("compare", {"project": "proj", "entries": entries, "gone": []})
        assert not [
            one for one in gc.get_objects() if type(one) is replicas.ConfirmedRevision and id(one) not in before
        ]


@pytest.mark.parametrize("value", ["yes", 1, None, []])
async def test_what_is_no_truth_value_is_refused(daemon: Serving, value: object) -> None:
    """It would decide who is told."""
    async with machine(daemon) as caller:
        with pytest.raises(RequestError, match="watches"):
            await attach(caller, watches=value)


def states(files: dict[str, tuple[str, int]]) -> list[tuple[str, str, int]]:
    return [(path, text_hash(text), revision) for path, (text, revision) in files.items()]


async def test_digests_tell_which_buckets_differ(daemon: Serving) -> None:
    """None where all is the same; the buckets of what is changed, missing or new; and those alone are compared then."""
    files = {f"memory/{number}.md": (f"Number {number}\n", 1) for number in range(60)}
    async with machine(daemon) as caller:
        await caller.attach()
        for path, (text, _) in files.items():
            await caller.put(path, text)
        body = {"project": "proj", "digests": digests(states(files))}
        assert await caller.request("digest", body) == {"differ": []}
        files["memory/7.md"] = ("Changed\n", 1)
        del files["memory/8.md"]
        files["memory/new.md"] = ("New\n", 0)
        expected = {bucket_of(f"memory/{name}.md") for name in ("7", "8", "new")}
        differ = (await caller.request("digest", {**body, "digests": digests(states(files))}))["differ"]
        assert differ == sorted(expected)
        answer = await caller.request(
            "compare",
            {
                "project": "proj",
                "entries": [list(state) for state in states(files) if bucket_of(state[0]) in expected],
                "gone": [["memory/8.md", 1]],
                "buckets": differ,
            },
        )
        assert sorted(answer["send"]) == ["memory/7.md", "memory/new.md"]
        assert answer["pull"] == []
        assert [path for path, _ in answer["drop"]] == ["memory/8.md"]


async def test_digests_are_of_what_the_caller_may_see(daemon: Serving) -> None:
    """A project without a grant is denied; the global one is empty to a machine that has none for it."""
    async with machine(daemon, projects={"proj"}) as caller:
        await caller.attach("proj", "global")
        empty = {"digests": [""] * BUCKETS}
        assert await caller.request("digest", {"project": "proj", **empty}) == {"differ": []}
        assert await caller.request("digest", {"project": "global", **empty}) == {"differ": []}
        for wrong in ([], ["x"], [7] * BUCKETS, "x"):
            with pytest.raises(RequestError):
                await caller.request("digest", {"project": "proj", "digests": wrong})
        for wrong in ([BUCKETS], [-1], ["1"], [True], 7):
            with pytest.raises(RequestError):
                await caller.request("compare", {"project": "proj", "entries": [], "gone": [], "buckets": wrong})
