"""The short form of a note's id: shown to models, taken wherever an id is, and never that of another note."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.daemon.notes.test_notes_isolation import HIDDEN, OPEN, settled
from tests.support.daemon.loopback import Machine, Serving, machine
from tests.support.documents.notes import Agent, acting, text_of

SHOWN = re.compile(r"\bmem_[0-9a-f]{4,16}\b")


async def put(laptop: Machine, identity: str, more: str = "", *, project: str = "proj") -> str:
    """A note of that id, made in an editor."""
    name = identity.removeprefix("mem_")
    text = f"---\nid: {identity}\n{more}---\n\nThe pump of {name} runs.\n"
    await laptop.put(f"memory/notes/{name}.md", text, project=project)
    return identity


async def read(agent: Agent, tool: str, **arguments: Any) -> str:
    result = await agent.client.call_tool(tool, arguments)
    assert not result.is_error
    return text_of(result)


async def test_every_tool_takes_it(agent: Agent, laptop: Machine) -> None:
    """From the text of a search on; what stands in files is whole."""
    one, two = await agent.note("The pump runs at 40 Hz."), await agent.note("The valve is red.")
    short = SHOWN.findall(await read(agent, "memory_search", query="pump runs", maxResults=1, minScore=0))[0]
    other = (await agent.call("memory_get", id=two))["shortId"]
    assert (short, other) == (f"mem_{one[-8:-3]}", f"mem_{two[-8:-3]}")
    assert (await agent.call("memory_get", id=short))["id"] == one
    assert short in await read(agent, "memory_get", id=one)
    assert short in await read(agent, "memory_list")
    assert "40 Hz" in (await agent.call("memory_read", path=short))["content"]
    assert "40 Hz" in (await agent.call("memory_read", path=one))["content"]
    assert (await agent.call("memory_update", id=short, content="It runs at 42 Hz."))["id"] == one
    assert len((await agent.call("memory_history", id=short))["revisions"]) == 2
    assert "40 Hz" in (await agent.call("memory_read", path=short, revision=1))["content"]

    linked = await agent.call("memory_link", id=short, relatedId=other, relation="refines")
    assert f"id: {two}" in laptop.files["proj", linked["note"]["path"]]
    stored = await agent.call(
        "memory_store", content="Both are old.", title="Age", relatedTo=[short], relation="part_of"
    )
    assert f"id: {one}" in laptop.files["proj", stored["path"]]
    updated = await agent.call("memory_update", id=stored["shortId"], relatedTo=[other, two, short], relation="part_of")
    assert sorted(relation["id"] for relation in updated["relations"]) == sorted([two, one])
    for tool, related in (
        ("memory_link", {"relatedId": one, "relation": "refines"}),
        ("memory_update", {"relatedTo": [one]}),
    ):
        assert "related to itself" in await agent.refused(tool, id=short, **related)

    assert (await agent.call("memory_delete", id=other))["deleted"]
    assert len((await agent.call("memory_history", id=other))["revisions"]) == 2
    assert (await agent.call("memory_update", id=other, restoreRevision=1))["id"] == two


async def test_several_that_begin_so_are_named(agent: Agent, laptop: Machine) -> None:
    one = await put(laptop, "mem_one_1_abcde000")
    two = await put(laptop, "mem_two_1_abcde111")
    assert [(await agent.call("memory_get", id=each))["shortId"] for each in (one, two)] == [
        "mem_abcde00",
        "mem_abcde11",
    ]
    for tool, name in (("memory_get", "id"), ("memory_read", "path"), ("memory_delete", "id")):
        told = await agent.refused(tool, **{name: "mem_abcde"})
        assert "mem_abcde is the id of several notes" in told
        assert f"hint: one of {one}, {two}" in told
    assert (await agent.call("memory_get", id="mem_abcde0"))["id"] == one
    assert "no note of that id" in await agent.refused("memory_get", id="mem_abcdf")
    # All digits are another's too, or begin another's.
    for same in ("mem_three_1_abcde000", "mem_four_1_abcde1112"):
        await put(laptop, same)
    assert [(await agent.call("memory_get", id=each))["shortId"] for each in (one, two)] == [one, two]
    assert "several" in await agent.refused("memory_get", id="mem_abcde000")


async def test_of_deleted_ones_too(agent: Agent, laptop: Machine) -> None:
    for identity in ("mem_one_1_abcde000", "mem_two_1_abcde111"):
        await put(laptop, identity)
        await agent.call("memory_delete", id=identity)
    told = await agent.refused("memory_history", id="mem_abcde")
    assert "mem_one_1_abcde000" in told
    assert "mem_two_1_abcde111" in told
    assert (await agent.call("memory_history", id="mem_abcde1"))["path"] == "memory/notes/two_1_abcde111.md"


async def test_what_is_hidden_makes_none_longer(daemon: Serving) -> None:
    """Nor is it a candidate: a caller of one project is told the same whatever other projects hold."""
    async with (
        machine(daemon, "owner", space="s") as owner,
        machine(daemon, "guest", space="s", projects={OPEN}) as guest,
    ):
        await owner.attach(HIDDEN, OPEN, "global", toolsets=["all"])
        mine = await put(owner, "mem_open_1_abcde000", project=OPEN)
        await put(owner, "mem_hidden_1_abcde000", project=HIDDEN)
        await guest.attach(OPEN, toolsets=["all"])
        async with acting(guest) as agent, acting(owner) as all_seeing:
            await settled(agent)
            assert (await agent.call("memory_get", id="mem_abcd"))["shortId"] == "mem_abcde"
            assert (await all_seeing.call("memory_get", id=mine))["shortId"] == mine
            assert "several" in await all_seeing.refused("memory_get", id="mem_abcd")
            assert "no note of that id" in await agent.refused("memory_get", id="mem_abcdf")


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_file_may_state_something_of_a_short_id(agent: Agent, laptop: Machine, is_first: bool) -> None:
    """Whichever of the two comes first. Of a note of its own project alone, or his would supersede what somebody does not see."""
    stated = "relations: {supersedes: [mem_abcde]}\n"
    await laptop.attach("proj", "other", "global", toolsets=["all"])
    if is_first:
        await put(laptop, "mem_new_1_00000001", stated)
    old = await put(laptop, "mem_old_1_abcde000")
    if not is_first:
        await put(laptop, "mem_new_1_00000001", stated)
    await put(laptop, "mem_far_1_00000002", stated, project="other")
    found = await agent.call("memory_get", id=old)
    assert found["supersededBy"] == ["mem_new_1_00000001"]
    assert (await agent.call("memory_get", id="mem_new_1_00000001"))["problems"] == []
    # What was meant is meant when others begin so.
    await put(laptop, "mem_third_1_abcde333")
    assert (await agent.call("memory_get", id=old))["supersededBy"] == ["mem_new_1_00000001"]
