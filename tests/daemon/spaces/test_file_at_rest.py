"""A stolen disk tells nothing: what is remembered stands in no file in clear, whatever the daemon is doing, and however it ends.

With the real program, and at every moment that leaves something else behind: while it works, while it changes a key, killed, and stopped.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.support.daemon.loopback import Machine
from tests.support.deadline import DEADLINE_S
from tests.support.documents.transcripts import batch, said
from tests.support.programs.confided import Confided
from tests.support.programs.processes import NO_MODEL, wait_until
from tests.support.sealing.founder import Device

DOCUMENT, QUERY, TITLE, NOTE, ENTITY, TAG, TRANSCRIPT, PROJECT, FILE, LATE = (
    f"canary{number}{word}"
    for number, word in enumerate(
        ("document", "query", "title", "note", "entity", "tag", "transcript", "project", "file", "late")
    )
)
CANARIES = (DOCUMENT, QUERY, TITLE, NOTE, ENTITY, TAG, TRANSCRIPT, PROJECT, FILE, LATE)
EVERYTHING = {"projects": [], "project": PROJECT}


class Disk:
    """All that whoever takes the disk would have: the data folder, the folder for temporary files, and the log."""

    def __init__(self, home: Confided) -> None:
        self._home = home
        self.temporary = home.home / "tmp"
        self.temporary.mkdir()
        self.secrets: list[bytes] = []

    def tells(self) -> list[str]:
        """Which file shows what."""
        needles = [spelling for canary in CANARIES for spelling in (canary.encode(), canary.encode("utf-16-le"))]
        needles += [b"SQLite format 3", *self.secrets, *(secret.hex().encode() for secret in self.secrets)]
        found, seen = [], 0
        for path in (*self._home.data.rglob("*"), *self.temporary.rglob("*"), self._home.home / "log"):
            if path.is_socket():
                continue
            try:
                content = path.read_bytes()
            except (FileNotFoundError, IsADirectoryError):
                continue
            seen += 1
            found += [f"{path.name}: {needle!r}" for needle in needles if needle in content]
            found += [f"the name {path.name}" for canary in CANARIES if canary in path.name]
        assert seen > 4
        return found


async def plant(laptop: Machine) -> None:
    """Everything that a machine can leave with a daemon."""
    await laptop.attach(PROJECT, toolsets=("all",))
    for number in range(8):
        text = f"# {DOCUMENT} {number}\n\n{DOCUMENT} lies in the harbour.\n" * 10
        await laptop.put(f"memory/{FILE}{number}.md", text, project=PROJECT)
    transcript = batch(0, 100, said("user", f"why {TRANSCRIPT}?"), said("assistant", TRANSCRIPT), version=0)
    await laptop.request("transcript", {**transcript, "project": PROJECT})
    async with laptop.mcp() as agent:
        note = {"content": f"{NOTE} is worth keeping", "title": TITLE, "entity": ENTITY, "tags": [TAG]}
        stored = await agent.call_tool("memory_store", note)
        assert not stored.is_error, stored.content
        for words in (QUERY, f"{DOCUMENT} {QUERY}", NOTE, TRANSCRIPT, ENTITY):
            found = await agent.call_tool("memory_search", {"query": words})
            assert not found.is_error, found.content
        forgotten = await agent.call_tool("memory_search", {"query": f"{QUERY} {LATE}"})
        assert not forgotten.is_error


async def write_on(laptop: Machine) -> None:
    """Until cancelled."""
    for number in range(10_000):
        await laptop.put(f"memory/{FILE}-more{number}.md", f"# {LATE}\n\n{LATE} {number}\n", project=PROJECT)


async def remembered(laptop: Machine) -> str:
    """What a search gives."""
    await laptop.attach(PROJECT)
    async with laptop.mcp() as agent:
        found = await agent.call_tool("memory_search", {"query": f"{DOCUMENT} harbour"})
    return json.dumps(found.structured_content)


@pytest.mark.parametrize("keeper", ["server", "caller"])
async def test_no_file_shows_what_is_remembered(ready: Confided, keeper: str) -> None:
    (ready.home / "daemon.toml").write_text(f'{NO_MODEL}\n[at_rest]\ncustody = "{keeper}"\n')
    disk = Disk(ready)
    ready.env["TMPDIR"] = str(disk.temporary)
    identity = ready.enroll()
    device = Device(identity)
    serve = ("--verbose", "--listen", "127.0.0.1:0")
    process = ready.serve(*serve)
    async with await ready.connect(identity) as laptop:
        if keeper == "caller":
            await device.found(laptop)
            await device.unlock(laptop)
            disk.secrets += [*device.keys.epochs, device.keys.database_key(1)]
        await plant(laptop)
        assert disk.tells() == []
        writing = asyncio.create_task(write_on(laptop))
        changing = asyncio.create_task(change_key(ready, laptop, device if keeper == "caller" else None))
        while not changing.done():
            assert disk.tells() == []
            await asyncio.sleep(0.01)
        await changing
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        process.kill()
        process.wait(DEADLINE_S)
    assert disk.tells() == []
    spaces = json.loads(ready.run("status", "--json", code=5).stdout)["atRest"]
    assert (spaces["laptop"]["custody"], spaces["laptop"]["locked"]) == (keeper, keeper == "caller")

    process = ready.serve(*serve)
    async with await ready.connect(identity) as laptop:
        if keeper == "caller":
            disk.secrets += [*device.keys.epochs, device.keys.database_key(2)]
            assert await device.unlock(laptop) is False
        assert DOCUMENT in await remembered(laptop)
        assert disk.tells() == []
    process.terminate()
    process.wait(DEADLINE_S)
    assert disk.tells() == []
    assert not list(ready.data.glob("spaces/*-wal"))


async def change_key(ready: Confided, laptop: Machine, device: Device | None) -> None:
    """While everything goes on."""
    if device is None:
        said = await asyncio.to_thread(ready.json, "space", "key", "--new", "laptop")
        assert said["generation"] == 1
        return
    await device.rotate(laptop)
    await device.unlock(laptop, 2)
    (custody,) = ready.data.glob("spaces/*.custody")
    wanted = {"keeper": "caller", "number": 2}

    def is_changed() -> bool:
        told: dict[str, Any] = json.loads(custody.read_bytes())
        return told["key"] == wanted

    await asyncio.to_thread(wait_until, "the key of the new epoch", is_changed)


async def test_an_operator_sees_who_keeps_a_key_and_gives_it_away(ready: Confided) -> None:
    """With and without a running daemon; a locked space is told of, and is nothing that is wrong."""
    identity = ready.enroll()
    device = Device(identity)
    process = ready.serve()
    async with await ready.connect(identity) as laptop:
        await laptop.attach("proj")
        await laptop.put("memory/a.md", "# A\n\nabout the pool\n")
        await device.found(laptop)
        assert "next connects" in ready.run("space", "key", "laptop", "caller").stderr
        await device.unlock(laptop)
        wait_until("its machines to keep it", lambda: ready.json("space", "key", "laptop")["custody"] == "caller")
        said = ready.run("status").stdout
        assert "laptop: its devices keep its key (key 1); unlocked; 1 device" in said
        told = ready.json("doctor")
        (database,) = [check for check in told if check["check"] == "database of laptop"]
        assert (database["ok"], "unlocked; 1 device" in database["detail"]) == (True, True)
        refusal = ready.run("space", "key", "--new", "laptop", code=1).stderr
        assert "the devices of this space keep its key" in refusal
    process.terminate()
    process.wait(DEADLINE_S)
    assert "its devices keep its key (key 1); locked" in ready.run("status", code=5).stdout
    assert "locked" in ready.run("doctor").stdout
    assert "skipped: this space is locked" in ready.run("space", "reindex").stderr
    assert "this space is locked" in ready.run("space", "reindex", "--space", "laptop", code=4).stderr
    assert "this space is locked" in ready.run("space", "bench", "--space", "laptop", code=4).stderr
    assert ready.json("space", "key", "laptop", "server")["wanted"] == "server"
    ready.run("space", "key", "laptop", "nobody", code=7)
    ready.run("space", "key", "attic", "server", code=7)
    ready.run("space", "key", "--new", "attic", code=7)
    ready.serve()
    async with await ready.connect(identity) as laptop:
        await device.unlock(laptop)
        wait_until("the server to keep it", lambda: ready.json("space", "key", "laptop")["custody"] == "server")
        await laptop.attach("proj")
        assert (await laptop.request("pull", {"project": "proj", "path": "memory/a.md"}))["text"]
    ready.end()
    assert ready.json("space", "key", "--new", "laptop")["generation"] == 2
    assert ready.json("space", "key", "laptop")["generation"] == 2
    ready.run("doctor")
