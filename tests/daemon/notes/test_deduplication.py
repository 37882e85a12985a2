"""Notes that say nearly the same are grouped, shown, and on request made one, of which the others stay as its past."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from mcp.client.client import Client
from tests.support.daemon.loopback import Machine, Serving, machine, serving
from tests.support.deadline import DEADLINE_S
from tests.support.documents.notes import Agent, acting
from tests.support.providers.likeness import LikenessEmbedder

from confide_daemon.embedding import LoadedModel
from confide_daemon.errors import ConflictError, ProviderDownError
from confide_daemon.notes.deduplication import Deduplication, groups
from confide_daemon.notes.similarity import NoteFingerprint, sorted_words
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared


@pytest.fixture
def model() -> LikenessEmbedder:
    return LikenessEmbedder()


@pytest.fixture
async def daemon(tmp_path: Path, model: LikenessEmbedder) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "data", embedder=LoadedModel.ready(model)) as running:
        yield running


async def note(machine: Machine, name: str, body: str, *, project: str = "proj", updated: str, **fields: Any) -> str:
    """A note as a person writes it, with its dates; its id."""
    identity = f"mem_{name}_1700000000_{sum(map(ord, name)):08x}"
    head = {"id": identity, "title": name, **fields, "created": "2026-01-01", "updated": updated}
    await machine.put(
        f"memory/notes/{name}.md", f"---\n{yaml.safe_dump(head, sort_keys=False)}---\n\n{body}\n", project=project
    )
    return identity


def fields_of(machine: Machine, path: str, project: str = "proj") -> dict[str, Any]:
    found = yaml.safe_load(machine.files[project, path].split("---\n")[1])
    assert isinstance(found, dict)
    return found


def ids(group: dict[str, Any]) -> tuple[str, set[str]]:
    return group["keep"]["id"], {older["id"] for older in group["older"]}


async def indexed(agent: Agent) -> None:
    await agent.call("memory_sync")


async def test_a_group_is_shown_and_then_merged(agent: Agent, laptop: Machine) -> None:
    old = await note(
        laptop,
        "old",
        "Deploys are on Monday. @deploy",
        updated="2026-02-01",
        tags=["Ops", "release"],
        importance="high",
        keywords=["ship"],
    )
    older = await note(laptop, "older", "We deploy on Mondays. @deploy:iiii", updated="2026-01-01", tags=["weekly"])
    new = await note(
        laptop, "new", "Deploys are on Tuesday. @deploy:ii", updated="2026-03-01", tags=["ops"], importance="normal"
    )
    await note(laptop, "other", "The cafeteria opens at eight. @food", updated="2026-03-01")
    await indexed(agent)
    before = dict(laptop.files)
    shown = await agent.call("memory_dedupe")
    assert (shown["total"], shown["merged"], shown["notesCompared"]) == (1, 0, 4)
    (group,) = shown["groups"]
    assert ids(group) == (new, {old, older})
    assert group["preview"] == {
        "content": "Deploys are on Tuesday. @deploy:ii",
        "tags": ["ops", "release", "weekly"],
        "keywords": ["ship"],
        "importance": 0.75,
        "level": "high",
    }
    assert group["merged"] is False
    assert laptop.files == before

    done = await agent.call("memory_dedupe", merge=True)
    assert (done["total"], done["merged"], done["warnings"]) == (1, 1, [])
    # On the machine's disk, with the dates as they were: no text has changed.
    fields = fields_of(laptop, "memory/notes/new.md")
    assert fields["tags"] == ["ops", "release", "weekly"]
    assert fields["importance"] == "high"
    assert {relation["id"] for relation in fields["relations"]} == {old, older}
    assert {relation["relation"] for relation in fields["relations"]} == {"supersedes"}
    assert str(fields["updated"]) == "2026-03-01"
    for identity in (old, older):
        left = await agent.call("memory_get", id=identity)
        assert left["supersededBy"] == [new]
        assert "deploy" in left["content"]
    assert laptop.files["proj", "memory/notes/old.md"] == before["proj", "memory/notes/old.md"]

    # A second run finds nothing, and neither does the next note.
    again = await agent.call("memory_dedupe", merge=True)
    assert (again["groups"], again["merged"], again["notesCompared"]) == ([], 0, 2)


async def test_a_chain_is_no_group(agent: Agent, laptop: Machine) -> None:
    """Each is near the one before, the last one is not near the first."""
    made = [
        await note(
            laptop, f"n{step}", "@topic" + (":" + step * 15 * "i" if step else ""), updated=f"2026-03-{20 - step:02}"
        )
        for step in range(4)
    ]
    await indexed(agent)
    found = await agent.call("memory_dedupe", threshold=0.96)
    assert {(keep, *others) for keep, others in map(ids, found["groups"])} == {(made[0], made[1]), (made[2], made[3])}


async def test_a_group_is_of_one_place(agent: Agent, laptop: Machine) -> None:
    await note(laptop, "here", "@topic", updated="2026-03-01")
    await note(laptop, "everywhere", "@topic:i", updated="2026-03-02", project="global")
    for task in ("one", "two"):
        await agent.call("memory_store", content=f"{task} @topic:ii", title=task, scope="task", taskId=task)
    await indexed(agent)
    assert (await agent.call("memory_dedupe"))["total"] == 0


async def test_what_a_caller_may_not_see_is_neither_grouped_nor_counted(daemon: Serving) -> None:
    async with machine(daemon, "owner", space="shared") as owner:
        await owner.attach("secret", "proj", "global", toolsets=["all"])
        for project in ("secret", "proj"):
            for name, day in (("a", "01"), ("b", "02")):
                await note(
                    owner,
                    f"{project}{name}",
                    f"The same thing, {name}. @{project}",
                    updated=f"2026-03-{day}",
                    project=project,
                )
        async with acting(owner) as agent:
            await indexed(agent)
            assert (await agent.call("memory_dedupe", project="*"))["total"] == 2
    async with machine(daemon, "guest", space="shared", projects={"proj"}) as guest:
        await guest.attach("proj", toolsets=["all"])
        async with acting(guest) as agent:
            found = await agent.call("memory_dedupe", project="*")
            assert (found["total"], found["notesCompared"]) == (1, 2)
            assert found["groups"][0]["keep"]["project"] == "proj"
            assert "secret" in await agent.refused("memory_dedupe", project="secret")
    async with machine(daemon, "reader", space="shared", scope="read") as reader:
        await reader.attach("proj", toolsets=["all"])
        async with acting(reader) as agent:
            assert (await agent.call("memory_dedupe"))["total"] == 1
            assert "may read" in await agent.refused("memory_dedupe", merge=True)
            assert (await agent.call("memory_dedupe"))["total"] == 1


async def test_other_machines_get_the_merged_note(daemon: Serving) -> None:
    async with machine(daemon, "one", space="shared") as one, machine(daemon, "two", space="shared") as two:
        await one.attach("proj", "global", toolsets=["all"])
        await two.attach("proj")
        await note(one, "first", "@topic", updated="2026-03-01", tags=["kept"])
        await note(one, "second", "@topic:i", updated="2026-03-02")
        async with acting(one) as agent:
            await indexed(agent)
            assert (await agent.call("memory_dedupe", merge=True))["merged"] == 1
        async with asyncio.timeout(DEADLINE_S):
            while "supersedes" not in two.files.get(("proj", "memory/notes/second.md"), ""):
                await two.applied.get()
        assert fields_of(two, "memory/notes/second.md")["tags"] == ["kept"]


async def test_a_front_matter_that_cannot_be_read_is_left_alone(agent: Agent, laptop: Machine) -> None:
    await note(laptop, "good", "@topic", updated="2026-03-01")
    await note(laptop, "fine", "@other", updated="2026-03-01")
    await note(laptop, "better", "@other:i", updated="2026-03-02")
    broken = "---\ntitle: [unclosed\n---\n\n@topic:i\n"
    await laptop.put("memory/notes/broken.md", broken)
    await indexed(agent)
    done = await agent.call("memory_dedupe", merge=True)
    assert (done["total"], done["merged"]) == (2, 1)
    assert "not YAML" in done["warnings"][0]
    assert laptop.files["proj", "memory/notes/broken.md"] == broken


async def test_without_vectors_words_are_compared(agent: Agent, laptop: Machine, model: LikenessEmbedder) -> None:
    model.failure = ProviderDownError("cannot reach the provider")
    text = (
        "The nightly export of invoices goes to the finance bucket at two in the morning, in UTC, and takes {} minutes."
    )
    new = await note(laptop, "new", text.format("nine"), updated="2026-03-02")
    old = await note(laptop, "old", text.format("ten"), updated="2026-03-01")
    found = await agent.call("memory_dedupe")
    assert [ids(group) for group in found["groups"]] == [(new, {old})]
    assert found["groups"][0]["older"][0]["by"] == "text"


async def test_notes_with_other_numbers_are_two(agent: Agent, laptop: Machine) -> None:
    """Two invoices, with the same words otherwise."""
    for name, body in (("one", "Invoice 4471 was paid. @topic"), ("two", "Invoice 4472 was paid. @topic")):
        await note(laptop, name, body, updated="2026-03-01")
    await indexed(agent)
    assert (await agent.call("memory_dedupe"))["groups"] == []
    await note(laptop, "three", "Paid: invoice 4472. @topic", updated="2026-03-02")
    await indexed(agent)
    (group,) = (await agent.call("memory_dedupe"))["groups"]
    assert "4471" not in str(group)


async def test_progress_is_told_to_who_asks(laptop: Machine) -> None:
    async with laptop.mcp() as client:
        assert isinstance(client, Client)
        told: list[tuple[float, float | None]] = []

        async def follow(progress: float, total: float | None, message: str | None) -> None:
            told.append((progress, total))

        await client.call_tool("memory_store", {"content": "@topic", "title": "one"})
        await client.call_tool("memory_dedupe", {}, progress_callback=follow)
        assert told
        assert all(total is not None and done <= total for done, total in told)


async def test_a_group_that_changes_meanwhile_is_left_alone(tmp_path: Path, model: LikenessEmbedder) -> None:
    handle = LoadedModel.ready(model)
    space = await Space.open(tmp_path / "space.db", os.urandom(32), SpaceShared(IndexSettings(), handle), space_id="x")
    try:
        for name, day, body in (("old", "01", "@topic"), ("new", "02", "@topic:i")):
            text = f"---\nupdated: 2026-03-{day}\n---\n\n{body}\n"
            await space.documents.put("proj", f"memory/notes/{name}.md", text, base=0, author="me")
        assert await space.wait_indexed(timeout_s=DEADLINE_S)

        async def nobody(_done: int, _total: int) -> None: ...

        (merger,) = (await Deduplication(space.threads, space.notes).find(None, 0.95, nobody)).mergers
        await space.documents.append("proj", "memory/notes/old.md", "And this.", heading=None, author="somebody")
        with pytest.raises(ConflictError):
            await Deduplication(space.threads, space.notes).merge(merger, author="me")
        assert (await space.documents.read("proj", "memory/notes/new.md")).revision == 1

        # Given up half way, it leaves the space as it was.
        async def give_up(_done: int, _total: int) -> None:
            raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            await Deduplication(space.threads, space.notes).find(None, 0.95, give_up)
        assert (await Deduplication(space.threads, space.notes).find(None, 0.95, nobody)).compared_notes == 2
    finally:
        await space.close()


def made(vectors: Sequence[Sequence[float]], words: str = "") -> NoteFingerprint:
    rows = np.array(vectors, dtype=np.float32)
    return NoteFingerprint(rows, np.ones(len(rows), dtype=np.float32), sorted_words(words), 10 * len(rows))


def test_ten_thousand_notes_fall_into_their_groups() -> None:
    """Known groups among many, of notes that are alike by their vectors or by their words, wherever blocks end."""
    chance = np.random.default_rng(7)
    rows = chance.standard_normal((10_000, 64)).astype(np.float32)
    rows[5::1000] = rows[4::1000] + 0.01  # ten pairs
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    # Without digits: notes with other numbers are never one.
    spelled = [str(number).translate(str.maketrans("0123456789", "abcdefghij")) for number in range(len(rows))]
    texts = [f"entry {name} tells of w{name}x and v{name}y and u{name}z in our log" for name in spelled]
    texts[7000] = texts[1] + " too"
    notes = [made([row], text) for row, text in zip(rows, texts, strict=True)]
    found = {(group.newest, *(other for other, _ in group.others)) for step in groups(notes, 0.95) for group in step}
    assert found == {(at, at + 1) for at in range(4, 10_000, 1000)} | {(1, 7000)}
