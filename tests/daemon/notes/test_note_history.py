"""The history of a note says who changed what, in a line each."""

from __future__ import annotations

from datetime import datetime

from tests.support.daemon.loopback import Machine
from tests.support.documents.notes import Agent

from confide_daemon.documents.document_history import compare


async def test_each_revision_says_what_it_changed(agent: Agent, laptop: Machine) -> None:
    note = await agent.note("# Plan\n\nOne.\n\n## Later\n\nTwo.", title="T")
    await agent.call("memory_update", id=note, status="done", tags=["a"])
    ((_, path),) = laptop.files
    text = laptop.files["proj", path].replace("Two.", "Two.\nThree.").replace("One.", "First.")
    await laptop.put(path, text, base=2)
    history = await agent.call("memory_history", id=note)
    assert (history["path"], history["project"]) == (path, "proj")
    third, second, first = history["revisions"]
    assert [one["revision"] for one in history["revisions"]] == [3, 2, 1]
    assert third["summary"] == "+2 -1 lines; under Plan, Later"
    assert second["summary"].startswith("+")
    assert "fields " in second["summary"]
    assert {"status", "tags"} <= set(second["summary"].replace(",", "").split())
    assert first["summary"] == "created"
    assert {one["author"] for one in history["revisions"]} == {"laptop"}
    assert third["bytes"] == len(text.encode())
    assert all(datetime.fromisoformat(one["time"]) for one in history["revisions"])
    older = await agent.call("memory_history", path=path, limit=2)
    assert [one["summary"] for one in older["revisions"]] == [third["summary"], second["summary"]]


async def test_what_is_not_there_has_no_history(agent: Agent) -> None:
    note = await agent.note("Text.")
    assert "no note of that id" in await agent.refused("memory_history", id="mem_nobody_1_abcdef12")
    assert "nothing is known" in await agent.refused("memory_history", path="memory/nobody.md")
    assert "one of 'id' and 'path'" in await agent.refused("memory_history")
    assert "one of 'id' and 'path'" in await agent.refused("memory_history", id=note, path="memory/x.md")


def test_what_was_moved_is_no_change() -> None:
    found = compare("a\nb\nc\n", "c\na\nb\n")
    assert found is not None
    assert (found.added, found.removed) == (0, 0)


def test_texts_that_are_too_large_are_not_compared() -> None:
    assert compare("x" * 600_000, "y" * 600_000) is None


def test_a_summary_is_short() -> None:
    before = "".join(f"# Heading {number} {'x' * 100}\n\ntext\n" for number in range(50))
    found = compare(before, before.replace("text", "other"))
    assert found is not None
    assert len(str(found)) < 500
    assert str(found).endswith(", ...")
