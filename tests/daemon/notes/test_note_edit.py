"""`memory_update` changes what it is told to, and nothing else, in the file that the person has too."""

from __future__ import annotations

import re

import pytest
from tests.support.daemon.loopback import Machine, Serving, machine
from tests.support.documents.notes import Agent, acting

from confide_daemon.notes.note_edit import change_fields
from confide_memory.note_names import id_of_path

BY_HAND = """\
---
# what I drink
title: Coffee   # mine
mood: sleepy
tags:
  - drinks # all of them
  - hot
metadata: {cups: 3}
---

Black.
"""
COFFEE = id_of_path("proj", "memory/notes/coffee.md")


def without_time(text: str) -> str:
    return re.sub(r"updated: \S+\n", "", text)


async def test_only_the_given_fields_change(agent: Agent, laptop: Machine) -> None:
    await laptop.put("memory/notes/coffee.md", BY_HAND)
    note = await agent.call(
        "memory_update", id=COFFEE, tags=["drinks", "hot", "beans"], importance="high", title="Good coffee"
    )
    assert (note["changed"], note["onDisk"], note["queued"], note["revision"]) == (True, True, False, 2)
    assert (note["title"], note["tags"], note["level"]) == ("Good coffee", ["drinks", "hot", "beans"], "high")
    text = laptop.files["proj", "memory/notes/coffee.md"]
    assert without_time(text) == BY_HAND.replace("Coffee   #", "Good coffee   #").replace(
        "  - hot\n", "  - hot\n  - beans\n"
    ).replace("---\n\nBlack", "importance: high\n---\n\nBlack")
    assert "updated: " in text


async def test_content_replaces_the_text_alone(agent: Agent, laptop: Machine) -> None:
    await laptop.put("memory/notes/coffee.md", BY_HAND.replace("\n", "\r\n"))
    note = await agent.call("memory_update", id=COFFEE, content="With milk.\n\nNo sugar.")
    assert note["content"].replace("\r", "") == "With milk.\n\nNo sugar."
    text = laptop.files["proj", "memory/notes/coffee.md"]
    assert without_time(text.replace("\r\n", "\n")) == BY_HAND.replace("Black.", "With milk.\n\nNo sugar.")
    assert text.count("\n") == text.count("\r\n")
    (hit,) = (await agent.call("memory_search", query="milk sugar"))["results"]
    assert hit["path"] == "memory/notes/coffee.md"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("\ufeffOld.\r\n", "\ufeffNew.\r\nText.\r\n"),
        ("Old", "New.\nText.\n"),
        ("\n\nOld\n\n", "\n\nNew.\nText.\n"),
        ("---\nmood: fine\n---", "---\nmood: fine\nupdated: T\n---\n\nNew.\nText.\n"),
        ("---\nmood: fine\n---\nOld.", "---\nmood: fine\nupdated: T\n---\nNew.\nText.\n"),
        ("", "New.\nText.\n"),
    ],
)
def test_a_text_is_replaced_in_the_style_of_the_one_before(before: str, after: str) -> None:
    changed = change_fields({}, "New.\nText.", None, now=0.0)(before)
    assert changed == after.replace("updated: T", "updated: 1970-01-01T00:00:00Z")
    assert change_fields({}, "New.\nText.", None, now=9.0)(changed) == changed


async def test_empty_values_clear_and_null_leaves_out(agent: Agent) -> None:
    note = await agent.note("Text.", title="T", tags=["a"], entity="e", category="facts", metadata={"x": 1})
    after = await agent.call("memory_update", id=note, tags=[], entity="", metadata={}, category=None, status="done")
    assert (after["tags"], after["entity"], after["metadata"]) == ([], None, {})
    assert (after["category"], after["status"], after["title"]) == ("facts", "done", "T")


async def test_what_is_so_already_is_no_new_revision(agent: Agent, laptop: Machine) -> None:
    note = await agent.note("Text.", title="T", tags=["a"])
    (before,) = laptop.files.values()
    same = await agent.call("memory_update", id=note, tags=["a"], content="Text.\n", title="T", importance="")
    assert (same["changed"], same["revision"]) == (False, 1)
    assert list(laptop.files.values()) == [before]


async def test_relations_of_one_kind_are_replaced(agent: Agent) -> None:
    one, two, three = [await agent.note(f"Note {number}.") for number in range(3)]
    note = await agent.note("The one.", relatedTo=[one, two], relation="refines")
    await agent.call("memory_link", id=note, relatedId=three, relation="see_also")
    after = await agent.call("memory_update", id=note, relatedTo=[two, three], relation="refines")
    assert {(item["relation"], item["id"]) for item in after["relations"]} == {
        ("refines", two),
        ("refines", three),
        ("see_also", three),
    }
    cleared = await agent.call("memory_update", id=note, relatedTo=[], relation="refines")
    assert [(item["relation"], item["id"]) for item in cleared["relations"]] == [("see_also", three)]


async def test_a_stale_revision_is_a_conflict_that_names_both(agent: Agent) -> None:
    note = await agent.note("First.")
    await agent.call("memory_update", id=note, content="Second.", expectedRevision=1)
    text = await agent.refused("memory_update", id=note, content="Third.", expectedRevision=1)
    assert "revision 2, not at 1" in text
    assert (await agent.call("memory_get", id=note))["content"] == "Second."


async def test_an_older_text_comes_back(agent: Agent, laptop: Machine) -> None:
    note = await agent.note("First.", tags=["a"])
    await agent.call("memory_update", id=note, content="Second.", tags=["b"])
    text = await agent.refused("memory_update", id=note, restoreRevision=1, expectedRevision=1)
    assert "revision 2, not at 1" in text
    back = await agent.call("memory_update", id=note, restoreRevision=1, expectedRevision=2)
    assert (back["content"], back["tags"], back["revision"], back["onDisk"]) == ("First.", ["a"], 3, True)
    assert [text for (_, path), text in laptop.files.items() if "First." in text]
    assert "no revision 9" in await agent.refused("memory_update", id=note, restoreRevision=9)


async def test_what_a_person_has_just_written_is_kept(agent: Agent, laptop: Machine) -> None:
    note = await agent.note("First line.\n\nLast line.", title="T")
    (key,) = laptop.files
    # Saved, and not sent yet: the file on the machine is newer than what the daemon has.
    laptop.files[key] = laptop.files[key].replace("First line.", "First line, by hand.")
    after = await agent.call("memory_update", id=note, status="done")
    assert after["content"] == "First line, by hand.\n\nLast line."
    assert after["status"] == "done"
    assert "First line, by hand." in laptop.files[key]
    assert "status: done" in laptop.files[key]


async def test_front_matter_that_cannot_be_read_is_not_touched(agent: Agent, laptop: Machine) -> None:
    broken = "---\ntitle: [Coffee\n---\nBlack.\n"
    await laptop.put("memory/notes/coffee.md", broken)
    text = await agent.refused("memory_update", id=COFFEE, tags=["x"])
    assert "is not YAML" in text
    assert "memory_read" in text
    assert laptop.files["proj", "memory/notes/coffee.md"] == broken


SENSELESS = [
    ({}, "nothing to change"),
    ({"expectedRevision": 1}, "nothing to change"),
    ({"restoreRevision": 1, "tags": ["a"]}, "a whole text back"),
    ({"relation": "refines"}, "needs 'relatedTo'"),
    ({"relatedTo": ["mem_nobody_1_abcdef12"]}, "no note of that id"),
    ({"importance": "urgent"}, "core, high, normal, low"),
    ({"tags": ["x"] * 33}, "the limit is 32"),
    ({"tags": ["a\x07"]}, "control characters"),
    ({"title": "x" * 201}, "too long"),
    ({"scope": "global"}, "store it where it belongs with memory_store"),
    ({"project": "other", "status": "x"}, "where its file lies"),
    ({"task_id": "release-42"}, "where its file lies"),
    ({"id2": "x"}, "unknown parameter"),
    ({"content": "a\x00b"}, "NUL"),
    ({"expectedRevision": 0, "tags": []}, "between 1"),
]


async def test_what_makes_no_sense_is_refused(agent: Agent) -> None:
    note = await agent.note("Text.")
    for arguments, says in SENSELESS:
        assert says in await agent.refused("memory_update", id=note, **arguments)
        assert (await agent.call("memory_get", id=note))["revision"] == 1


async def test_rights(agent: Agent, daemon: Serving) -> None:
    note = await agent.note("Text.")
    async with machine(daemon, "reader", space="laptop", scope="read") as box:
        await box.attach("proj", toolsets=["all"])
        async with acting(box) as reader:
            assert "may read the memory but not write" in await reader.refused("memory_update", id=note, status="x")
            assert "may read the memory but not write" in await reader.refused("memory_delete", id=note)
            assert "may read the memory but not write" in await reader.refused(
                "memory_link", id=note, relatedId="mem_nobody_1_abcdef12", relation="see_also"
            )
    async with machine(daemon, "guest", space="laptop", projects={"other"}) as box:
        await box.attach("other", toolsets=["all"])
        async with acting(box) as guest:
            nobody = await guest.refused("memory_get", id="mem_nobody_1_abcdef12")
            for tool, more in (
                ("memory_update", {"status": "x"}),
                ("memory_update", {"restoreRevision": 1}),
                ("memory_delete", {}),
                ("memory_history", {}),
            ):
                assert await guest.refused(tool, id=note, **more) == nobody
            mine = await guest.note("Mine.")
            text = await guest.refused("memory_link", id=mine, relatedId=note, relation="see_also")
            assert text == nobody
            assert (await guest.call("memory_list", project="*"))["total"] == 1
    # A project that this connection does not keep on disk is not written by it.
    async with machine(daemon, "second", space="laptop") as box:
        await box.attach("other", toolsets=["all"])
        async with acting(box) as second:
            assert "cannot write to project 'proj'" in await second.refused("memory_update", id=note, status="x")
            assert "cannot write to project 'proj'" in await second.refused("memory_delete", id=note)
    assert (await agent.call("memory_get", id=note))["revision"] == 1


@pytest.mark.parametrize("before", ["Old.\n", "\ufeffOld.\r\n", ""])
async def test_a_text_that_looks_like_front_matter_is_text(agent: Agent, laptop: Machine, before: str) -> None:
    """Else the note would be another one: its id and its fields would be those of its text."""
    await laptop.put("memory/notes/coffee.md", before)
    content = "---\nid: mem_other_1_abcdef12\ntags: [a]\n---\n\nA template."
    for status in ("open", "done"):
        note = await agent.call("memory_update", id=COFFEE, content=content, status=status)
        assert (note["id"], note["content"].replace("\r", ""), note["tags"]) == (COFFEE, content, [])
        assert (note["status"], note["problems"]) == (status, [])
    plain = await agent.call("memory_update", id=COFFEE, content="A text.")
    assert plain["content"] == "A text."
    await laptop.put("memory/notes/bare.md", before)
    bare = await agent.call("memory_update", id=id_of_path("proj", "memory/notes/bare.md"), content=content)
    assert (bare["content"].replace("\r", ""), bare["tags"]) == (content, [])
