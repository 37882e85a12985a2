"""What a new note says already is told with the ids, and nothing is dropped or merged for it."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Machine, Serving, machine, serving
from tests.support.deadline import DEADLINE_S
from tests.support.documents.notes import Agent, acting
from tests.support.providers.likeness import LikenessEmbedder

from confide_daemon.embedding import LoadedModel
from confide_daemon.errors import ProviderDownError
from confide_daemon.notes import duplicates
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared


@pytest.fixture
def model() -> LikenessEmbedder:
    return LikenessEmbedder()


@pytest.fixture
async def daemon(tmp_path: Path, model: LikenessEmbedder) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "data", embedder=LoadedModel.ready(model)) as running:
        yield running


@pytest.fixture
async def agent(laptop: Machine) -> AsyncIterator[Agent]:
    """On a space whose index is there: before that, notes are compared by their words alone."""
    async with acting(laptop) as agent:
        await agent.call("memory_store", content="Kettles boil.", path="memory/first.md")
        await agent.call("memory_sync")
        yield agent


async def store(agent: Agent, content: str, **fields: Any) -> dict[str, Any]:
    return await agent.call("memory_store", content=content, **({"title": "A note"} | fields))


async def test_a_note_that_means_the_same_is_told_with_a_way_to_merge(agent: Agent) -> None:
    first = await store(agent, "Releases leave on Tuesday mornings. @deploy", title="Release day")
    assert first["duplicates"] == []
    assert "merge" not in first["suggestions"]
    again = await store(agent, "We ship each week, early on its second day. @deploy:10", title="When we ship")
    assert again["id"] != first["id"]
    (same,) = again["duplicates"]
    assert {name: same[name] for name in ("id", "title", "path", "project", "by")} == {
        "id": first["id"],
        "title": "Release day",
        "path": first["path"],
        "project": "proj",
        "by": "embedding",
    }
    assert same["similarity"] == pytest.approx(math.cos(math.radians(10)), abs=1e-3)
    assert first["shortId"] in again["suggestions"]["merge"]
    assert "memory_dedupe" in again["suggestions"]["merge"]
    # Both are there.
    for note in (first, again):
        assert (await agent.call("memory_get", id=note["id"]))["revision"] == 1
    assert again["warnings"] == []


async def test_a_note_that_is_only_related_is_none(agent: Agent) -> None:
    await store(agent, "Releases leave on Tuesday mornings. @deploy")
    assert (await store(agent, "Rollbacks take ten minutes. @deploy:30"))["duplicates"] == []


async def test_a_note_with_nearly_the_same_words_is_told_by_its_text(agent: Agent) -> None:
    text = "The nightly export of invoices goes to the finance bucket at two in the morning, in UTC. {}"
    first = await store(agent, text.format("@one"))
    again = await store(agent, text.replace("nightly", "daily").format("@one:80"))
    assert [(one["id"], one["by"]) for one in again["duplicates"]] == [(first["id"], "text")]
    assert 0.9 <= again["duplicates"][0]["similarity"] < 1


async def test_a_long_note_is_no_duplicate_of_its_first_paragraph(agent: Agent) -> None:
    paragraph = "Releases leave on Tuesday mornings, after the checklist is signed by two people of the team. @deploy"
    others = [
        f"Then there is step {number}, which nobody but the operators has to know of. @step{number}"
        for number in range(5)
    ]
    await store(agent, paragraph)
    assert (await store(agent, "\n\n".join([paragraph, *others])))["duplicates"] == []


async def test_only_notes_of_this_place_and_global_ones_are_looked_at(agent: Agent) -> None:
    await store(agent, "Rebase before merging. @rebase", scope="task", taskId="other-task")
    everywhere = await store(agent, "Always rebase first. @rebase:1", scope="global")
    here = await store(agent, "Rebase, then merge. @rebase:2")
    assert [one["id"] for one in here["duplicates"]] == [everywhere["id"]]
    # Of two places nothing is merged by itself.
    assert f"memory_delete {here['shortId']}" in here["suggestions"]["merge"]
    assert "memory_dedupe" not in here["suggestions"]["merge"]
    task = await store(agent, "Merge after a rebase. @rebase:3", scope="task", taskId="this-task")
    assert {one["id"] for one in task["duplicates"]} == {everywhere["id"], here["id"]}


async def test_a_file_that_is_no_note_is_no_duplicate(agent: Agent) -> None:
    await agent.call("memory_store", content="Releases leave on Tuesday. @deploy")
    assert (await store(agent, "Releases go out on Tuesday. @deploy:2"))["duplicates"] == []


async def test_what_a_caller_may_not_see_is_not_told_of(daemon: Serving) -> None:
    texts = [
        "The vault key is kept by Ann, who is on call in March. @vault",
        "Ann, on call in March, keeps the vault's key. @vault:1",
    ]
    async with machine(daemon, "owner", space="shared") as owner:
        await owner.attach("secret", "global", toolsets=["all"])
        async with acting(owner) as agent:
            await store(agent, texts[0], scope="global")
            await store(agent, texts[0].replace("Ann", "Bob"))
    async with machine(daemon, "guest", space="shared", projects={"proj"}) as guest:
        await guest.attach("proj", toolsets=["all"])
        async with acting(guest) as agent:
            stored = await store(agent, texts[1])
            assert stored["duplicates"] == []
            assert "merge" not in stored["suggestions"]
            assert stored["warnings"] == []


async def test_a_note_that_names_the_other_is_not_told_of_it_again(agent: Agent) -> None:
    old = await store(agent, "Releases leave on Tuesday. @deploy")
    new = await store(agent, "Releases leave on Wednesday. @deploy:5", relatedTo=[old["id"]], relation="supersedes")
    assert new["duplicates"] == []
    # From then on the new one stands for both.
    third = await store(agent, "Wednesday is the day of the release. @deploy:6")
    assert [one["id"] for one in third["duplicates"]] == [new["id"]]


async def test_what_is_said_again_though_it_is_superseded_is_told(agent: Agent) -> None:
    old = await store(agent, "Releases leave on Tuesday. @deploy")
    new = await store(agent, "Releases leave on Wednesday. @deploy:5", relatedTo=[old["id"]], relation="supersedes")
    again = await store(agent, "Releases leave on Tuesday. @deploy")
    assert (again["id"], again["linesWritten"]) == (old["id"], 0)
    assert new["shortId"] in again["warnings"][0]


async def test_a_note_is_no_duplicate_of_what_it_said_before(agent: Agent, laptop: Machine) -> None:
    first = await store(agent, "Releases leave on Tuesday. @deploy")
    changed = laptop.files["proj", first["path"]].replace(
        "Releases leave on Tuesday. @deploy", "Nothing is released. @freeze"
    )
    await laptop.put(first["path"], changed, base=1)
    assert (await store(agent, "We release on Tuesday. @deploy:1"))["duplicates"] == []


async def test_a_note_is_embedded_once(agent: Agent, model: LikenessEmbedder) -> None:
    text = "Releases leave on Tuesday. @deploy"
    await agent.call("memory_sync")  # the index is at rest: what it does beside a note it may do twice
    await store(agent, text)
    await agent.call("memory_sync")
    await store(agent, text, scope="global")
    await agent.call("memory_sync")
    assert model.embedded[text] == 1


async def test_without_a_model_words_are_compared(agent: Agent, model: LikenessEmbedder) -> None:
    text = "The nightly export of invoices goes to the finance bucket at two in the morning, in UTC. @one"
    first = await store(agent, text)
    model.failure = ProviderDownError("cannot reach the provider")
    again = await store(agent, text.replace("nightly", "daily"))
    assert [(one["id"], one["by"]) for one in again["duplicates"]] == [(first["id"], "text")]
    (warning,) = again["warnings"]
    assert "cannot reach the provider" in warning
    assert "by text alone" in warning
    # Nothing is lost for it: the vector comes when the model is back.
    model.failure = None
    async with asyncio.timeout(DEADLINE_S):
        while not model.embedded[text.replace("nightly", "daily")]:
            await agent.call("memory_sync")


async def test_a_model_that_hangs_holds_up_neither_the_note_nor_others(
    agent: Agent, model: LikenessEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store(agent, "Releases leave on Tuesday. @deploy")
    model.open.clear()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(duplicates, "DEADLINE_S", 0.5)
            slow = asyncio.create_task(store(agent, "We ship on Tuesdays. @deploy:1"))
            # The thread that writes is free.
            await agent.call("memory_store", content="Something else happened.", path="memory/log.md")
            stored = await slow
    finally:
        model.open.set()
    assert stored["duplicates"] == []
    assert "did not answer" in stored["warnings"][0]
    await agent.call("memory_sync")
    third = await store(agent, "Ships leave on Tuesdays. @deploy:2")
    assert len(third["duplicates"]) == 2


async def test_a_budget_that_is_used_up_leaves_the_words(tmp_path: Path, model: LikenessEmbedder) -> None:
    handle = LoadedModel(lambda: model, name="paid", monthly_tokens=30, price_per_million=1.0)
    async with serving(tmp_path / "paid", embedder=handle) as daemon, machine(daemon) as laptop:
        await laptop.attach("proj", "global", toolsets=["all"])
        async with acting(laptop) as agent:
            text = "The nightly export of invoices goes to the finance bucket at two in the morning. @one"
            await store(agent, text)
            async with asyncio.timeout(DEADLINE_S):
                while not model.embedded[text]:  # the next note would take its share of the budget
                    await agent.call("memory_sync")
            again = await store(agent, text.replace("nightly", "daily"))
            (warning,) = [warning for warning in again["warnings"] if "by text alone" in warning]
            assert "budget" in warning
            assert [one["by"] for one in again["duplicates"]] == ["text"]
            assert sum(model.embedded.values()) == 1


async def test_others_are_answered_while_a_long_note_is_cut(tmp_path: Path, model: LikenessEmbedder) -> None:
    """They have many turns in the daemon's loop meanwhile."""
    space = await Space.open(
        tmp_path / "a.db", os.urandom(32), SpaceShared(IndexSettings(), LoadedModel.ready(model)), space_id="a"
    )
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.001)
            turns += 1

    counting = asyncio.create_task(count())
    try:
        async with space.duplicates.looking("All of it is one long text. " * 30_000):
            assert turns > 3
    finally:
        counting.cancel()
        await space.close()
