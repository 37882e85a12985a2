"""What is deleted leaves the machines, and can come back."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from tests.support.daemon.loopback import Machine, Serving, machine
from tests.support.deadline import DEADLINE_S
from tests.support.documents.notes import Agent


async def test_a_deleted_note_leaves_the_machines_and_can_come_back(
    agent: Agent, laptop: Machine, daemon: Serving
) -> None:
    async with machine(daemon, "desktop", space="laptop") as other:
        await other.attach("proj")
        note = await agent.note("Text.", tags=["a"])
        async with asyncio.timeout(DEADLINE_S):
            assert (await other.applied.get())["applied"]
        done = await agent.call("memory_delete", id=note)
        assert (done["deleted"], done["onDisk"], done["id"], done["revision"]) == (True, True, note, 2)
        assert datetime.fromisoformat(done["restorableUntil"]) > datetime.now(UTC)
        assert laptop.files == {}
        async with asyncio.timeout(DEADLINE_S):
            assert (await other.applied.get())["text"] is None
        assert other.files == {}
    assert "no note of that id" in await agent.refused("memory_get", id=note)
    assert "no note of that id" in await agent.refused("memory_update", id=note, status="x")
    assert (await agent.call("memory_list"))["total"] == 0
    assert (await agent.call("memory_search", query="text"))["results"] == []
    back = await agent.call("memory_update", id=note, restoreRevision=1)
    assert (back["content"], back["tags"], back["revision"], back["onDisk"]) == ("Text.", ["a"], 3, True)
    assert len(laptop.files) == 1


async def test_any_file_of_memory_is_deleted_by_its_path(agent: Agent, laptop: Machine) -> None:
    await agent.call("memory_store", content="Plan.", path="memory/plan.md")
    await agent.call("memory_store", content="All.", path="memory/plan.md", project="global")
    done = await agent.call("memory_delete", path="memory/plan.md")
    assert (done["deleted"], done["path"], done["project"]) == (True, "memory/plan.md", "proj")
    assert list(laptop.files) == [("global", "memory/plan.md")]
    assert "no such document" in await agent.refused("memory_delete", path="memory/plan.md")
    await agent.call("memory_delete", path="memory/plan.md", project="global")
    assert laptop.files == {}
    history = await agent.call("memory_history", path="memory/plan.md", project="proj")
    assert [one["summary"] for one in history["revisions"]] == ["deleted", "created"]


async def test_a_file_that_a_person_has_just_edited_is_not_deleted_under_them(agent: Agent, laptop: Machine) -> None:
    note = await agent.note("Text.")
    (key,) = laptop.files
    # Saved, and not sent yet.
    laptop.files[key] = edited = laptop.files[key].replace("Text.", "Text by hand.")
    done = await agent.call("memory_delete", id=note)
    assert done["deleted"] is False
    assert "just edited" in done["warnings"][0]
    assert laptop.files[key] == edited
    assert (await agent.call("memory_get", id=note))["content"] == "Text by hand."


async def test_what_has_become_another_text_is_not_deleted_or_written_over(agent: Agent, laptop: Machine) -> None:
    """By whoever says which revision it means: the note, and a file that is replaced, added to, or to be new. It is there as it was."""
    note = await agent.note("First.")
    await agent.call("memory_update", id=note, content="Second.")
    text = await agent.refused("memory_delete", id=note, expectedRevision=1)
    assert "at revision 2, not at 1" in text
    assert (await agent.call("memory_get", id=note))["content"] == "Second."
    assert (await agent.call("memory_delete", id=note, expectedRevision=2))["deleted"] is True

    file = {"content": "Plan.", "path": "memory/plan.md"}
    assert "no such document" in await agent.refused("memory_store", **file, mode="replace", expectedRevision=1)
    await agent.call("memory_store", **file, expectedRevision=0)
    assert "such a document already" in await agent.refused("memory_store", **file, mode="replace", expectedRevision=0)
    for mode in ("append", "replace"):
        assert "not at 7" in await agent.refused("memory_store", **file, mode=mode, expectedRevision=7)
    await laptop.put("memory/plan.md", "Plan by hand.\n", base=1)  # as a person's machine sends it
    assert "at revision 2, not at 1" in await agent.refused("memory_store", **file, mode="replace", expectedRevision=1)
    await agent.call("memory_delete", path="memory/plan.md", expectedRevision=2)
    await agent.call("memory_store", **file, mode="replace", expectedRevision=0)  # it is new once more
    assert "a note has a file" in await agent.refused("memory_store", content="x", title="X", expectedRevision=0)


async def test_a_machine_that_does_not_answer_is_said(agent: Agent, laptop: Machine) -> None:
    note = await agent.note("Text.")
    laptop.is_deaf = True
    done = await agent.call("memory_delete", id=note)
    assert (done["deleted"], done["onDisk"]) == (True, False)
    assert "has not confirmed" in done["warnings"][0]


async def test_a_note_that_a_person_renamed_comes_back_by_its_id(agent: Agent, laptop: Machine) -> None:
    note = await agent.note("Text.")
    (key,) = laptop.files
    text = laptop.files[key]
    await agent.call("memory_delete", path=key[1])
    await laptop.put("memory/notes/mine.md", text)
    await agent.call("memory_delete", id=note)
    back = await agent.call("memory_update", id=note, restoreRevision=1)
    assert back["path"] == "memory/notes/mine.md"
    history = await agent.call("memory_history", id=note)
    assert [one["summary"] for one in history["revisions"]] == ["restored", "deleted", "created"]


UNDELETABLE = [
    ({}, "'id' or 'path' is missing"),
    ({"id": "mem_nobody_1_abcdef12"}, "no note of that id"),
    ({"id": "mem_nobody_1_abcdef12", "path": "memory/x.md"}, "exclude each other"),
    ({"path": "memory/x.md"}, "no such document"),
    ({"path": "docs/x.md"}, "below memory/"),
    ({"path": "sessions/claude/x.md"}, "transcripts"),
    ({"path": "memory/../x.md"}, "not allowed"),
    ({"path": "memory/x.md", "project": "elsewhere"}, "cannot write to project"),
]


async def test_what_cannot_be_deleted_is_said(agent: Agent) -> None:
    for arguments, says in UNDELETABLE:
        assert says in await agent.refused("memory_delete", **arguments)
