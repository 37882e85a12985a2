"""A revision that a machine did not take comes again by itself: nobody has to save anything, and no comparison has to be waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Machine, Serving, machine, serving, text_hash
from tests.support.deadline import DEADLINE_S

from confide_crypto.errors import RequestError
from confide_daemon.server import replicas

PATH = "memory/a.md"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "AGAIN_S", 0.01)


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "data") as running:
        yield running


@pytest.fixture
async def laptop(daemon: Serving) -> AsyncIterator[Machine]:
    async with machine(daemon) as connected:
        await connected.attach("proj")
        yield connected


@pytest.fixture
async def desktop(daemon: Serving, laptop: Machine) -> AsyncIterator[Machine]:
    async with machine(daemon, "desktop", space="laptop") as connected:
        await connected.attach("proj")
        yield connected


async def told(one: Machine) -> dict[str, Any]:
    """What a machine was asked to write, and whether it has."""
    async with asyncio.timeout(DEADLINE_S):
        return await one.applied.get()


async def test_a_machine_whose_disk_refused_gets_it_again(laptop: Machine, desktop: Machine) -> None:
    take, refusals = laptop.apply, 3

    async def apply(body: dict[str, Any]) -> dict[str, Any]:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            raise RequestError("invalid", "cannot be written: the disk is full")
        return await take(body)

    laptop.apply = apply
    await desktop.put(PATH, "- theirs\n")
    assert (await told(laptop))["text"] == "- theirs\n"
    assert laptop.files["proj", PATH] == "- theirs\n"


async def test_the_newest_one_comes_in_place_of_one_that_was_refused(laptop: Machine, desktop: Machine) -> None:
    take, texts = laptop.apply, []

    async def apply(body: dict[str, Any]) -> dict[str, Any]:
        texts.append(body["text"])
        if len(texts) == 1:
            await desktop.put(PATH, "- theirs\n- more\n", base=1)
            raise RequestError("invalid", "cannot be written: the disk is full")
        return await take(body)

    laptop.apply = apply
    await desktop.put(PATH, "- theirs\n")
    assert (await told(laptop))["text"] == "- theirs\n- more\n"
    assert texts == ["- theirs\n", "- theirs\n- more\n"]


async def test_a_machine_that_edits_is_asked_again_until_it_has_taken_it(laptop: Machine, desktop: Machine) -> None:
    """Its own edit was sent meanwhile, and merged; the answer to that may have been lost."""
    laptop.files["proj", PATH] = "- mine\n"
    await desktop.put(PATH, "- theirs\n")
    assert not (await told(laptop))["applied"]
    del laptop.files["proj", PATH]
    while not (answer := await told(laptop))["applied"]:
        pass
    assert answer["text"] == "- theirs\n"


async def test_it_is_left_after_some_tries(laptop: Machine, desktop: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose place is taken by something else stays so; the machine's own comparisons go on."""
    monkeypatch.setattr(replicas, "MOST_TRIES", 2)
    laptop.files["proj", PATH] = "- mine\n"
    await desktop.put(PATH, "- theirs\n")
    for _ in range(3):
        assert not (await told(laptop))["applied"]
    await desktop.put("memory/b.md", "- other\n")
    assert (await told(laptop))["path"] == "memory/b.md"
    assert laptop.applied.empty()


async def test_what_a_put_was_merged_to_comes_although_its_answer_was_lost(laptop: Machine, desktop: Machine) -> None:
    await desktop.put(PATH, "- theirs\n")
    assert (await told(laptop))["applied"]
    laptop.files["proj", PATH] = "- mine\n"
    body = {"project": "proj", "path": PATH, "text": "- mine\n", "hash": text_hash("- mine\n"), "base": 0}
    merged = (await laptop.request("put", body))["text"]  # which the machine does not write
    assert sorted(merged.splitlines()) == ["- mine", "- theirs"]
    assert (await told(laptop))["text"] == merged


async def test_a_store_that_was_not_confirmed_in_time_is_brought(
    laptop: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As over a slow line, or to a machine that was frozen."""
    monkeypatch.setattr(replicas, "WRITE_BACK_DEADLINE_S", 0.1)
    laptop.is_deaf = True
    async with laptop.mcp() as client:
        stored = await client.call_tool("memory_store", {"content": "- told", "path": PATH})
    assert stored.structured_content["onDisk"] is False
    laptop.is_deaf = False
    assert (await told(laptop))["text"] == "- told\n"


async def test_a_pull_confirms_nothing(laptop: Machine, desktop: Machine) -> None:
    """The file was edited when the answer came. Taken for an edit of what was pulled, it would delete the other's lines."""
    attach = {"project": "proj", "machine": "box", "toolsets": ["core"], "watches": False}
    await laptop.request("attach", attach)  # so that it is told of nothing
    await desktop.put(PATH, "- theirs\n")
    await laptop.request("pull", {"project": "proj", "path": PATH})
    laptop.files["proj", PATH] = "- mine\n"
    take = laptop.apply

    async def apply(body: dict[str, Any]) -> dict[str, Any]:
        answer = await take(body)
        return answer if answer["applied"] else {**answer, "base": 0}

    laptop.apply = apply
    async with laptop.mcp() as client:
        await client.call_tool("memory_store", {"content": "- told", "path": PATH})
    text = (await desktop.request("pull", {"project": "proj", "path": PATH}))["text"]
    assert sorted(text.splitlines()) == ["- mine", "- theirs", "- told"]


async def test_a_machine_that_is_too_far_behind_compares(
    laptop: Machine, desktop: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More has changed than waits for one machine: a comparison brings it, and soon."""
    monkeypatch.setattr(replicas, "MAX_WAITING", 2)
    take, go = laptop.apply, asyncio.Event()

    async def apply(body: dict[str, Any]) -> dict[str, Any]:
        await go.wait()
        return await take(body)

    laptop.apply = apply
    for number in range(5):
        await desktop.put(f"memory/{number}.md", "text\n")
    go.set()
    for _ in range(3):
        await told(laptop)
    async with asyncio.timeout(DEADLINE_S):
        while not laptop.scans:  # noqa: ASYNC110 - the machine's list, which tells nobody
            await asyncio.sleep(0.01)
    assert laptop.scans == [{"force": False}]
