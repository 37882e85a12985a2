"""Files that a person left in an odd state break no tool, and notes keep their ids while their files are moved about."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.daemon.loopback import Machine
from tests.support.documents.notes import Agent

from confide_memory.note_names import id_of_path

ODD = id_of_path("proj", "memory/notes/odd.md")


@pytest.mark.parametrize(
    "moment", ["9999-12-31T23:59:59-12:00", "9999-12-31T23:59:59.999999", "0001-01-01T00:00:00+14:00"]
)
async def test_a_date_that_no_calendar_has_breaks_no_tool(agent: Agent, laptop: Machine, moment: str) -> None:
    text = f"---\ntitle: Odd\nentity: X\ncreated: {moment}\nupdated: {moment}\n---\n\nXylophones.\n"
    await laptop.put("memory/notes/odd.md", text)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("memory_list", {}),
        ("memory_search", {"query": "xylophones"}),
        ("entity_list", {}),
        ("entity_search", {"query": "x"}),
        ("project_summary", {}),
    ]
    for tool, arguments in calls:
        await agent.call(tool, **arguments)
    assert len((await agent.call("memory_get", id=ODD))["problems"]) == 2


async def test_a_list_until_the_last_of_all_days(agent: Agent) -> None:
    await agent.note("Text.")
    for until in ("9999-12-31", "9999-12-31T23:59:59"):
        assert (await agent.call("memory_list", until=until))["total"] == 1


async def test_a_renamed_file_keeps_its_id_whichever_of_its_names_is_seen_first(agent: Agent, laptop: Machine) -> None:
    note = await agent.note("Coffee is drunk black.", tags=["drinks"])
    other = await agent.note("With sugar on Sundays.", relatedTo=[note], relation="refines")
    ((_, old), text), *_ = laptop.files.items()
    await laptop.put("memory/notes/coffee.md", text)
    assert (await agent.call("memory_get", id=note))["path"] == old
    copy = await agent.call("memory_get", id=id_of_path("proj", "memory/notes/coffee.md"))
    assert copy["problems"] == ["'id' is that of another note, so the file's name gives one"]
    # The file of the new name is there before that of the old one is known to be gone.
    await agent.call("memory_delete", path=old)
    found = await agent.call("memory_get", id=note)
    assert (found["path"], found["problems"], copy["title"]) == ("memory/notes/coffee.md", [], found["title"])
    assert [(one["relation"], one["id"]) for one in found["relations"]] == [("refines", other)]
    (listed,) = (await agent.call("memory_list", tags=["drinks"]))["memories"]
    assert (listed["id"], listed["problems"]) == (note, 0)


async def test_of_two_copies_one_has_the_id_and_the_other_one_gets_it_when_the_first_says_another(
    agent: Agent, laptop: Machine
) -> None:
    text = "---\nid: mem_a_1_abcdef12\ntitle: A\n---\n\nText.\n"
    await laptop.put("memory/notes/one.md", text)
    await laptop.put("memory/notes/two.md", text)
    assert (await agent.call("memory_get", id="mem_a_1_abcdef12"))["path"] == "memory/notes/one.md"
    await laptop.put("memory/notes/one.md", text.replace("12\n", "13\n"), base=1)
    assert (await agent.call("memory_get", id="mem_a_1_abcdef12"))["path"] == "memory/notes/two.md"
    assert (await agent.call("memory_get", id="mem_a_1_abcdef13"))["path"] == "memory/notes/one.md"
    # And back: whoever has it keeps it.
    await laptop.put("memory/notes/one.md", text, base=2)
    assert (await agent.call("memory_get", id="mem_a_1_abcdef12"))["path"] == "memory/notes/two.md"


async def test_what_is_wrong_with_each_entry_of_a_long_list_is_said_once(agent: Agent, laptop: Machine) -> None:
    entries = ", ".join(["nothing"] * 5000)
    await laptop.put("memory/notes/odd.md", f"---\nrelations: [{entries}]\ncreated: soon\n---\n\nText.\n")
    problems = (await agent.call("memory_get", id=ODD))["problems"]
    assert [problem.split()[0] for problem in problems] == ["'relations'", "'created'"]
    (listed,) = (await agent.call("memory_list"))["memories"]
    assert listed["problems"] == 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("title: Tea\n", "title: Tea: how to brew it\n"),
        ("title: Tea\n", "title: [Tea\n"),
        ("status: open\n", "<<<<<<< HEAD\nstatus: open\n=======\nstatus: done\n>>>>>>> theirs\n"),
        ("status: open\n", "status: open\nstatus: done\n"),
        ("status: open\n", "status: *open\n"),
        ("status: open\n", "status: open\n\tindented: x\n"),
        ("status: open\n", "this is no field\nstatus: open\n"),
    ],
)
async def test_front_matter_that_is_no_yaml_keeps_what_can_be_read_of_it(
    agent: Agent, laptop: Machine, before: str, after: str
) -> None:
    """A colon too many, or a merge of git's, does not make it another note; what is wrong is said, and nothing is changed by a tool."""
    text = "---\nid: mem_tea_1_abcdef12\ntitle: Tea\nstatus: open\ntags:\n  - hot\n  - green\nimportance: high\n---\n\nTea.\n"
    other = await agent.note("Coffee.")
    await laptop.put("memory/notes/odd.md", text)
    await agent.call("memory_link", id=other, relatedId="mem_tea_1_abcdef12", relation="contradicts")
    odd = text.replace(before, after)
    await laptop.put("memory/notes/odd.md", odd, base=1)
    note = await agent.call("memory_get", id="mem_tea_1_abcdef12")
    assert (note["tags"], note["level"], note["content"]) == (["hot", "green"], "high", "Tea.")
    assert (len(note["problems"]), len(note["relations"])) == (1, 1)
    assert "cannot be changed field by field" in await agent.refused("memory_update", id=note["id"], tags=["cold"])
    assert laptop.files["proj", "memory/notes/odd.md"] == odd
    repaired = await agent.call("memory_store", content=text, path="memory/notes/odd.md", mode="replace")
    assert repaired["path"] == "memory/notes/odd.md"
    note = await agent.call("memory_get", id="mem_tea_1_abcdef12")
    assert (note["title"], note["status"], note["problems"]) == ("Tea", "open", [])


async def test_only_tags_have_a_mark(agent: Agent) -> None:
    note = await agent.note("Headers.", tags=["#c"], keywords=["#include", "#define"])
    whole = await agent.call("memory_get", id=note)
    assert (whole["tags"], whole["keywords"]) == (["c"], ["#include", "#define"])
