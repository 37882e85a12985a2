"""Transcripts in the daemon: taken once, in order, in documents that are searched and read but belong to no folder."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.daemon.loopback import Machine, Serving, machine, serving
from tests.support.deadline import DEADLINE_S
from tests.support.documents.transcripts import SESSION, batch, said

from confide_crypto.errors import RequestError
from confide_daemon.documents import transcripts
from confide_daemon.documents.transcripts import PART_BYTES, MessageBatch, SessionName, TranscriptMessage
from confide_daemon.retrieval.chunker import ChunkSettings, cut
from confide_daemon.retrieval.indexing.indexer import Derivation
from confide_daemon.store.space_store import Store
from confide_memory.markdown_blocks import headings

PATH = f"sessions/2026-11-20-claude-code-{SESSION}.md"


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "data") as running:
        yield running


@pytest.fixture
async def laptop(daemon: Serving) -> AsyncIterator[Machine]:
    async with machine(daemon) as connected:
        await connected.attach("proj")
        yield connected


async def send(laptop: Machine, begin: int, end: int, *messages: dict[str, str], version: int) -> dict[str, Any]:
    return await laptop.request("transcript", batch(begin, end, *messages, version=version))


async def read(laptop: Machine, path: str = PATH) -> str:
    text: str = (await laptop.request("pull", {"project": "proj", "path": path}))["text"]
    return text


async def test_a_session_reads_as_a_dialogue(laptop: Machine) -> None:
    """Who said what, when and on which branch; what follows at once stands below the same heading."""
    await send(
        laptop,
        0,
        100,
        said("user", "why postgres?"),
        said("assistant", "# Because\n\nof its row locks.", minutes=1),
        said("assistant", "[tool Bash: make test]", minutes=2),
        said("user", "and now?", minutes=3, branch="fix/locks"),
        version=0,
    )
    assert await read(laptop) == (
        f"# Claude Code session of 2026-11-20\n\nBegan 14:03 UTC on branch main; session {SESSION}.\n\n"
        "## User 14:03\n\nwhy postgres?\n\n"
        "## Assistant 14:04\n\n### Because\n\nof its row locks.\n\n[tool Bash: make test]\n\n"
        "## User 14:06 (branch fix/locks)\n\nand now?\n"
    )


async def test_what_is_sent_again_is_taken_once(laptop: Machine) -> None:
    """Older is ignored, newer is not taken; both are answered with the state, from which the machine goes on."""
    first = await send(laptop, 0, 10, said("user", "one"), version=0)
    assert (first["taken"], first["version"], first["offset"], first["mark"]) == (True, 1, 10, "m10")
    for again in (
        await send(laptop, 0, 10, said("user", "one"), version=0),
        await send(laptop, 50, 60, said("user", "six"), version=1),
        await send(laptop, 10, 20, said("user", "two"), version=7),
    ):
        assert again == {**first, "taken": False}
    second = await send(laptop, 10, 20, said("user", "two", minutes=1), version=1)
    assert (second["taken"], second["offset"]) == (True, 20)
    asked = {"project": "proj", "agent": "claude-code", "session": SESSION}
    assert await laptop.request("transcript", asked) == {**second, "taken": False}
    assert re.findall(r"^(one|two|six)$", await read(laptop), re.MULTILINE) == ["one", "two"]


async def test_a_file_that_was_rewritten_begins_anew(laptop: Machine) -> None:
    """In place of what was there, not beside it."""
    state = await send(laptop, 0, 10, said("user", "the first thought about turnips"), version=0)
    state = await send(laptop, 0, 12, said("user", "a better thought about carrots"), version=state["version"])
    assert (state["taken"], state["offset"]) == (True, 12)
    text = await read(laptop)
    assert "carrots" in text
    assert "turnips" not in text
    async with laptop.mcp() as client:
        found = await client.call_tool("memory_search", {"query": "turnips", "minScore": 0.1})
        assert "turnips" not in str(found.structured_content)
    assert (await send(laptop, 12, 20, said("user", "more"), version=state["version"]))["taken"]


@pytest.mark.long
async def test_a_long_session_is_several_documents(laptop: Machine) -> None:
    """Every message is in one of them, once; each is found by its words; a piece knows its heading and its lines."""
    state = {"version": 0, "offset": 0}
    chance = random.Random(7)
    for number in range(12):
        words = [f"w{chance.randrange(5000)}" for _ in range(4000)]
        text = "\n\n".join(" ".join(words[at : at + 40]) for at in range(0, 4000, 40))
        messages = [said("user" if number % 2 else "assistant", f"marker{number} {text}", minutes=number * 300)]
        state = await send(laptop, state["offset"], state["offset"] + 10, *messages, version=state["version"])
        assert state["taken"]
    compared = await laptop.request("compare", {"project": "proj", "entries": [], "gone": []})
    assert compared["pull"] == []
    async with laptop.mcp() as client:
        paths = set()
        for number in range(12):
            found = await client.call_tool("memory_search", {"query": f"marker{number}", "sources": ["sessions"]})
            hit = found.structured_content["results"][0]
            assert f"marker{number} " in hit["snippet"]
            assert ("User" if number % 2 else "Assistant") in hit["heading"]
            paths.add(hit["path"])
            shown = await client.call_tool("memory_read", {"path": hit["path"], "fromLine": hit["startLine"]})
            assert f"marker{number} " in shown.structured_content["content"]
    texts = [await read(laptop, path) for path in sorted(paths)]
    assert len(texts) > 1
    assert all(len(text) < PART_BYTES + 1000 for text in texts)
    assert sorted(int(n) for n in re.findall(r"marker(\d+) ", "".join(texts))) == list(range(12))
    assert all(re.match(r"sessions/2026-11-2\d-claude-code-[0-9a-f-]+\.md", path) for path in paths)


NASTY = (
    "```python\nnever closed",
    "<!-- never closed",
    "<script>\nx",
    "Title\n===",
    "- a\n  - b",
    "> quote",
    "# big\n\nx\n## sub\n\ny",
    "a\n---",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "\n\nblank\n\n\n",
    "    code",
    "~~~\nx\n~~~",
    "1. a\n1. b",
    "- item\n\n  ```\n  in the item",
    '[link]: <unclosed\n"title',
)


def test_added_pieces_are_those_of_the_whole(tmp_path: Path) -> None:
    """Cutting only what is added gives the pieces of the whole document, whatever the messages hold; each keeps its heading."""
    store = Store.open(tmp_path / "a.db", os.urandom(32), writer=True, now=0.0)
    derivation = Derivation(ChunkSettings())
    for number, text in enumerate(NASTY):
        message = TranscriptMessage(
            ("user", "assistant")[number % 2], text, datetime(2026, 11, 20, 14, number, tzinfo=UTC)
        )
        one = MessageBatch(SessionName("p", "codex", "s"), number, number, number + 1, "", "", (message,))
        assert transcripts.take(store, one, author="a", derive=derivation.keep, extend=derivation.extend)[1]
    row = store.documents.list_documents(None)[0]
    revision = store.documents.revision(row.id, row.revision)
    assert revision is not None
    whole = revision.text or ""
    present = sorted(store.pieces.hits(range(1, 1000)).values(), key=lambda hit: hit.position)
    pieces = cut(whole, derivation.chunks)
    assert [(hit.start_line, hit.end_line, hit.heading, hit.text) for hit in present] == [
        (piece.start_line, piece.end_line, piece.heading, piece.text) for piece in pieces
    ]
    speakers = [heading.title for heading in headings(whole) if heading.level == 2]
    assert speakers == [f"{('User', 'Assistant')[number % 2]} 14:{number:02}" for number in range(len(NASTY))]
    store.close()


async def test_a_batch_may_come_as_a_stream(laptop: Machine) -> None:
    """As large ones do; what is no list of messages is refused and changes nothing."""
    params = {key: value for key, value in batch(0, 50, version=0).items() if key != "messages"}
    long = "the harbour at night " * 3000
    body = json.dumps([said("user", long)]).encode()
    answer = await laptop.connection.upload("transcript", params, body, timeout_s=DEADLINE_S)
    assert answer["taken"]
    assert long.strip() in await read(laptop)
    for wrong in (b"{}", b"[1]", b"[", b'[{"role": "root", "text": "x", "time": "2026-11-20"}]', b"[" * 4000):
        with pytest.raises(RequestError) as refused:
            await laptop.connection.upload("transcript", {**params, "version": 1}, wrong, timeout_s=DEADLINE_S)
        assert refused.value.code == "invalid"
    asked = {"project": "proj", "agent": "claude-code", "session": SESSION}
    assert (await laptop.request("transcript", asked))["version"] == 1


NO_BATCHES = [
    {"session": "../../etc"},
    {"session": ""},
    {"session": "a" * 101},
    {"agent": "Claude"},
    {"from": 5, "to": 4},
    {"from": -1},
    {"to": 2**60},
    {"version": True},
    {"head": "x" * 65},
    {"messages": [{"role": "user", "text": "x", "time": "yesterday"}]},
    {"messages": [{"role": "user", "text": "a\0b", "time": "2026-11-20T00:00:00Z"}]},
    {"messages": [{"role": "user", "text": "x", "time": "2026-11-20T00:00:00Z", "branch": "a\nb"}]},
]


async def test_what_is_no_batch_is_refused(laptop: Machine) -> None:
    for change in NO_BATCHES:
        with pytest.raises(RequestError) as refused:
            await laptop.request("transcript", {**batch(0, 9, version=0), **change})
        assert refused.value.code == "invalid"


async def test_transcripts_are_in_no_working_copy(laptop: Machine, daemon: Serving) -> None:
    """No machine is told to fetch them, none may write or delete one, and an agent cannot either."""
    async with machine(daemon, "desk", space="laptop") as desk:
        await desk.attach("proj")
        await send(laptop, 0, 10, said("user", "hello there"), version=0)
        for each in (laptop, desk):
            compared = await each.request("compare", {"project": "proj", "entries": [], "gone": [[PATH, 1]]})
            assert compared["pull"] == compared["send"] == compared["adopt"] == []
        with pytest.raises(RequestError, match="transcripts"):
            await desk.put(PATH, "x", base=1)
        with pytest.raises(RequestError, match="transcripts"):
            await desk.request("remove", {"project": "proj", "path": PATH, "base": 1})
        async with desk.mcp() as client:
            refused = await client.call_tool("memory_store", {"content": "x", "path": PATH})
            assert refused.is_error
        assert "hello there" in await read(laptop)
        await asyncio.sleep(0.2)
        assert desk.applied.empty()
        assert laptop.applied.empty()


async def test_a_forgotten_session_is_gone_and_stays_so(laptop: Machine) -> None:
    """Its text is in no document and no history, and what its machine sends afterwards is not taken."""
    await send(laptop, 0, 10, said("user", "the secret rhubarb"), version=0)
    await send(laptop, 10, 20, said("user", "more rhubarb", minutes=1), version=1)
    asked = {"project": "proj", "agent": "claude-code", "session": SESSION}
    gone = await laptop.request("transcript", {**asked, "forget": True})
    assert gone["forgotten"]
    for revision in (None, 1, 2):
        with pytest.raises(RequestError) as missing:
            await laptop.request("pull", {"project": "proj", "path": PATH, "revision": revision})
        assert missing.value.code == "not_found"
    again = await send(laptop, 20, 30, said("user", "rhubarb again"), version=gone["version"])
    assert (again["taken"], again["forgotten"]) == (False, True)
    async with laptop.mcp() as client:
        found = await client.call_tool("memory_search", {"query": "rhubarb", "minScore": 0})
        assert "rhubarb" not in str(found.structured_content["results"])


def test_nothing_that_was_derived_of_a_forgotten_session_is_kept(tmp_path: Path) -> None:
    """A vector tells something of its text: those of other documents stay for their return, those of a forgotten session do not."""
    store = Store.open(tmp_path / "a.db", os.urandom(32), writer=True, now=0.0)
    derivation, name = Derivation(ChunkSettings()), SessionName("p", "codex", "s")
    message = TranscriptMessage("user", "the secret rhubarb", datetime(2026, 11, 20, 14, 0, tzinfo=UTC))
    transcripts.take(
        store,
        MessageBatch(name, 0, 0, 1, "", "", (message,)),
        author="a",
        derive=derivation.keep,
        extend=derivation.extend,
    )
    with store.writing():
        model = store.vectors.add_generation("hashed", "words", 2, live=True, now=0.0)
        waiting = store.vectors.waiting(model.id, after=0, limit=100)
        store.vectors.add(model.id, [(piece.id, np.array([1.0, 0.0], dtype=np.float32)) for piece in waiting])
    hashes = [piece.hash for piece in waiting]
    assert store.vectors.known_vectors(model, hashes)
    transcripts.forget(store, name, author="a", derive=derivation.keep)
    assert not store.vectors.known_vectors(model, hashes)
    store.close()


async def test_memory_is_not_drowned_by_talk(laptop: Machine) -> None:
    """Hours of talk with the same words do not hide the note that says it."""
    await laptop.put("MEMORY.md", "# Decisions\n\nWe chose postgres over mysql for its row locks.\n")
    state = {"version": 0, "offset": 0}
    talk = ["which row locks does postgres have over mysql?", "mysql has row locks too; postgres over mysql then?",
            "we looked at postgres row locks, mysql row locks, and chose lunch"]  # fmt: skip
    for number in range(8):
        messages = [
            said(("user", "assistant")[n % 2], f"{talk[n % 3]} ({number}.{n})", minutes=n + number) for n in range(50)
        ]
        state = await send(laptop, state["offset"], state["offset"] + 50, *messages, version=state["version"])
    async with laptop.mcp() as client:
        await client.call_tool("memory_sync", {})  # waits for the vectors
        found = await client.call_tool("memory_search", {"query": "why did we choose postgres over mysql: row locks?"})
        assert "MEMORY.md" in [hit["path"] for hit in found.structured_content["results"][:3]]
        talked = await client.call_tool("memory_search", {"query": "chose lunch", "sources": ["sessions"]})
        assert talked.structured_content["results"][0]["source"] == "sessions"
        since = {"query": "postgres", "sources": ["sessions"], "until": "2026-11-19"}
        assert (await client.call_tool("memory_search", since)).structured_content["results"] == []
