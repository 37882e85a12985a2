"""A space that nobody uses is closed, and nobody who comes to it notices more than a moment."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import weakref
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.daemon.spaces.test_custodian import connected, finds, remember, until
from tests.support.daemon.loopback import Machine, Serving, machine, serving
from tests.support.deadline import DEADLINE_S
from tests.support.kills import closing_kills
from tests.support.sealing.founder import Device

from confide_crypto.errors import RequestError
from confide_daemon.embedding import LoadedModel
from confide_daemon.spaces import open_limit
from confide_transfer.move.daemon.space_transfer import Moving

SOON_S = 0.02


def is_open(daemon: Serving, name: str = "laptop") -> bool:
    """Whether the space of that name is open, and not about to be closed."""
    entry = daemon.daemon.spaces._entries[daemon.state.registry.spaces()[name]]
    return entry.space is not None and entry.closing is None


async def closed(daemon: Serving, name: str = "laptop") -> None:
    """Wait until it is closed, whole."""
    entry = daemon.daemon.spaces._entries[daemon.state.registry.spaces()[name]]
    await until("the space to be closed", lambda: entry.space is None and entry.closing is None)


async def test_a_connection_alone_keeps_no_space_open_and_its_next_call_is_answered(tmp_path: Path) -> None:
    """Of every kind: a request, a tool, a resource, a revision that another machine made."""
    async with serving(tmp_path / "data", close_after_s=SOON_S) as daemon:
        async with machine(daemon) as one, machine(daemon, "other", space="laptop") as other:
            await remember(one)
            await other.attach("proj")
            await closed(daemon)
            pulled = await one.request("pull", {"project": "proj", "path": "memory/notes.md"})
            assert "grey parrot" in pulled["text"]
            await closed(daemon)
            async with one.mcp() as client:
                found = await client.call_tool("memory_search", {"query": "grey parrot"})
                assert "grey parrot" in json.dumps(found.structured_content)
                await closed(daemon)
                read = await client.read_resource("memory://file/proj/memory/notes.md")
                assert "grey parrot" in str(read)
                await closed(daemon)
                stored = await client.call_tool("memory_store", {"content": "The parrot is called Hook."})
                assert not stored.is_error
            brought = await asyncio.wait_for(other.applied.get(), DEADLINE_S)
            assert "Hook" in brought["text"]
        await closed(daemon)


async def test_the_longest_unused_is_closed_for_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at once, of five that are used in turn; none of them loses anything."""
    monkeypatch.setattr(open_limit, "SPARE", 0)
    names = ["one", "two", "three", "four", "five"]
    async with serving(tmp_path / "data", most_open=2) as daemon, AsyncExitStack() as stack:
        machines = [await stack.enter_async_context(machine(daemon, name)) for name in names]
        for each in machines:
            await each.attach()  # what a connection opens by itself is open by then
        for each, name in zip(machines, names, strict=True):
            await remember(each, f"the parrot of {name}")
            assert is_open(daemon, name)
        assert [name for name in names if is_open(daemon, name)] == ["four", "five"]
        for each, name in zip(machines, names, strict=True):
            assert f"the parrot of {name}" in await finds(each, "parrot")
            assert sum(is_open(daemon, one) for one in names) <= 2


async def test_nothing_is_lost_where_spaces_are_closed_while_they_are_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four machines store at the same time, and no more than one of their spaces is open; each has all of its own at the end."""
    monkeypatch.setattr(open_limit, "SPARE", 0)
    names, count = ["one", "two", "three", "four"], 5
    async with serving(tmp_path / "data", most_open=1, close_after_s=SOON_S) as daemon, AsyncExitStack() as stack:
        machines = [await stack.enter_async_context(machine(daemon, name)) for name in names]

        async def store(each: Machine) -> None:
            await each.attach("proj")
            for number in range(count):
                await each.put(f"memory/{number}.md", f"# Note {number}\n\nthe parrot {number}\n")

        await asyncio.gather(*map(store, machines))
        for each in machines:
            for number in range(count):
                pulled = await each.request("pull", {"project": "proj", "path": f"memory/{number}.md"})
                assert f"the parrot {number}" in pulled["text"]


async def test_what_is_in_hand_is_not_closed_and_others_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits too long is told so; one who still waits when it is let go of is served."""
    monkeypatch.setattr(open_limit, "SPARE", 0)
    async with (
        serving(tmp_path / "data", most_open=1, close_after_s=SOON_S) as daemon,
        machine(daemon, "one") as one,
        machine(daemon, "two") as two,
    ):
        await remember(one)
        spaces, ids = daemon.daemon.spaces, daemon.state.registry.spaces()
        async with spaces.hold(ids["one"]) as held:
            monkeypatch.setattr(open_limit, "WAIT_S", 0.05)
            with pytest.raises(RequestError, match="others are in use") as crowded:
                await two.attach("proj")
            assert crowded.value.code == "busy"
            assert "storage" not in spaces.health_problems()
            assert spaces._entries[ids["one"]].space is held
            monkeypatch.setattr(open_limit, "WAIT_S", 20.0)
            waiting = asyncio.create_task(two.attach("proj"))
            await until("it to wait", lambda: not spaces._room._freed.is_set())
        await waiting


async def test_a_space_that_a_move_holds_still_stays_open(tmp_path: Path) -> None:
    """That it is held is known nowhere but in the open space."""
    async with serving(tmp_path / "data", close_after_s=SOON_S) as daemon, machine(daemon) as one:
        await remember(one)
        async with daemon.daemon.spaces.hold(daemon.state.registry.spaces()["laptop"]) as space:
            space.part(Moving).hold("a session")
        spare = daemon.enroll("spare")
        async with Machine(await daemon.connect(spare)) as other:
            await remember(other)
            await closed(daemon, "spare")
        assert is_open(daemon)
        space.on_session_end("a session")
        await closed(daemon)


async def test_a_closed_space_is_not_locked_and_a_locked_one_is_closed(tmp_path: Path) -> None:
    """The key that a machine has brought stays for as long as it is connected, and goes some time after."""
    options = {"keeper": "caller", "close_after_s": SOON_S, "lock_after_s": SOON_S}
    async with serving(tmp_path / "data", **options) as daemon:  # type: ignore[arg-type]
        device = Device(daemon.enroll("laptop"))
        async with await connected(daemon, device.identity) as one:
            await device.found(one)
            assert not await device.unlock(one)
            await remember(one)
            await closed(daemon)
            assert "grey parrot" in await finds(one)
            await closed(daemon)
        entry = daemon.daemon.spaces._entries[daemon.state.registry.spaces()["laptop"]]
        await until("the space to be locked", lambda: not entry.custodian.is_holding and entry.closing is None)
        async with await connected(daemon, device.identity) as again:
            with pytest.raises(RequestError) as refused:
                await again.attach("proj")
            assert refused.value.code == "locked"
            assert not await device.unlock(again)
            assert "grey parrot" in await finds(again)


async def test_of_a_closed_space_nothing_is_kept(tmp_path: Path) -> None:
    """Ten thousand may be used one after the other, and a model that waits to be loaded, or failed, outlives them all."""
    async with serving(tmp_path / "data", embedder=LoadedModel.none(), close_after_s=SOON_S) as daemon:
        async with machine(daemon) as one:
            await remember(one)
        async with daemon.daemon.spaces.hold(daemon.state.registry.spaces()["laptop"]) as space:
            left = weakref.ref(space.threads)
        await closed(daemon)
        del space

        def is_gone() -> bool:
            gc.collect()
            return left() is None

        await until("it to be gone", is_gone)


@pytest.mark.e2e
def test_what_was_acknowledged_is_there_after_a_kill_while_it_was_closed(tmp_path: Path) -> None:
    """At some of the moments; CONFIDE_CLOSING_STRIDE=1 takes each."""
    stride = os.environ.get("CONFIDE_CLOSING_STRIDE", "9")
    command = [sys.executable, closing_kills.__file__, str(tmp_path / "data"), stride]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    assert [line for line in lines if line["wrong"]] == []
    assert len(lines) > 2
    assert lines[-1]["acknowledged"] == closing_kills.STORES
