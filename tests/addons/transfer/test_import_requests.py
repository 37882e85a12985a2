"""What other systems remembered is taken in once, each note by itself, and only where the caller may write."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.daemon.loopback import Machine, Serving, machine
from tests.support.documents.notes import Agent

from confide_crypto.errors import RequestError
from confide_daemon.tools import machine_tools
from confide_transfer.local.memory_import import TOOL


def record(number: int, **fields: Any) -> dict[str, Any]:
    return {"id": f"mem_note_1700000000_{number:08x}", "content": f"Fact number {number}.", **fields}


async def take(laptop: Machine, *records: Any, project: str = "proj", **options: Any) -> list[dict[str, Any]]:
    answer = await laptop.request("import", {"project": project, "records": list(records), **options})
    results: list[dict[str, Any]] = answer["results"]
    return results


def states(results: list[dict[str, Any]]) -> list[str]:
    return [one["state"] for one in results]


async def test_a_record_becomes_a_note_with_all_it_says(agent: Agent, laptop: Machine) -> None:
    said = record(
        1,
        title="The first",
        category="facts",
        tags=["one"],
        importance="high",
        created="2024-01-02T03:04:05Z",
        relations=[{"relation": "refines", "id": record(2)["id"]}],
        metadata={"origin": {"system": "old", "id": "x1", "file": "~/old.db"}},
    )
    assert states(await take(laptop, said, record(2))) == ["new", "new"]
    note = await agent.call("memory_get", id=said["id"])
    assert (note["content"], note["title"], note["category"]) == ("Fact number 1.", "The first", "facts")
    assert (note["tags"], note["level"], note["source"]) == (["one"], "high", "import")
    assert note["created"] == "2024-01-02T03:04:05Z"
    assert note["metadata"] == said["metadata"]
    assert [(one["relation"], one["id"]) for one in note["relations"]] == [("refines", record(2)["id"])]
    found = await agent.call("memory_search", query="fact number", minScore=0)
    assert {hit["path"] for hit in found["results"]} == {
        "memory/notes/the-first-00000001.md",
        "memory/notes/fact-number-2-00000002.md",
    }


async def test_nothing_is_stored_twice(agent: Agent, laptop: Machine) -> None:
    """Neither what is here by its id, nor what another note says, nor what somebody deleted, unless it is asked for."""
    existing = await agent.note("Somebody said this.")
    assert states(await take(laptop, record(1), record(1))) == ["new", "known"]
    same = record(3, content="\nSomebody said this.\n")
    assert await take(laptop, same) == [{"state": "identical", "id": existing}]
    note = await agent.call("memory_get", id=record(1)["id"])
    await laptop.request("remove", {"project": "proj", "path": note["path"], "base": note["revision"]})
    assert states(await take(laptop, record(1), dryRun=True)) == ["deleted"]
    assert states(await take(laptop, record(1))) == ["deleted"]
    assert states(await take(laptop, record(1), again=True)) == ["new"]
    assert (await agent.call("memory_get", id=record(1)["id"]))["content"] == "Fact number 1."


async def test_one_text_about_two_things_comes_as_two_notes(agent: Agent, laptop: Machine) -> None:
    """As two entities of one observation do; a dry run says the same."""
    batch = [record(1, content="x", title="A", entity="A")]
    batch += [record(2, content="x", title="B", entity="B"), record(3, content="x", title="B", entity="b")]
    expected = ["new", "new", "identical"]
    assert states(await take(laptop, *batch, dryRun=True)) == expected
    assert states(await take(laptop, *batch)) == expected


async def test_the_same_memory_takes_what_comes_with_it_unless_that_is_less_trusted(
    agent: Agent, laptop: Machine
) -> None:
    """Tags of an import go to a note of an import; beside a note of an agent's they stay a note of their own, untrusted."""
    said = record(1, title="One", tags=["a"])
    assert states(await take(laptop, said)) == ["new"]
    again = {
        **said,
        "id": record(2)["id"],
        "tags": ["b"],
        "relations": [{"relation": "refines", "id": record(9)["id"]}],
    }
    assert await take(laptop, again) == [{"state": "identical", "id": said["id"]}]
    note = await agent.call("memory_get", id=said["id"])
    assert (note["tags"], note["revision"]) == (["a", "b"], 2)
    assert states(await take(laptop, {**again, "id": record(3)["id"]})) == ["identical"]
    assert (await agent.call("memory_get", id=said["id"]))["revision"] == 2
    existing = await agent.note("Somebody said this.", title="Said")
    assert states(await take(laptop, record(4, content="Somebody said this.", title="Said", tags=["x"]))) == ["new"]
    assert (await agent.call("memory_get", id=existing))["tags"] == []


async def test_what_was_deleted_is_known_by_its_id_whatever_it_is_called_by_now(agent: Agent, laptop: Machine) -> None:
    """Its file was named by the title that it had."""
    await take(laptop, record(1, title="Old name"))
    await agent.call("memory_delete", id=record(1)["id"])
    renamed = record(1, title="New name", content="Another text.")
    assert states(await take(laptop, renamed, dryRun=True)) == ["deleted"]
    assert states(await take(laptop, renamed, {**record(1, title="New name"), "id": "mem_note_1_00000002"})) == [
        "deleted",
        "new",
    ]
    assert states(await take(laptop, renamed, again=True)) == ["new"]


async def test_a_dry_run_says_what_would_be_and_stores_nothing(agent: Agent, laptop: Machine) -> None:
    batch = [record(1), record(2, content="Fact number 1."), record(1), record(3, tags=[7])]
    expected = ["new", "identical", "known", "refused"]
    assert states(await take(laptop, *batch, dryRun=True)) == expected
    await agent.refused("memory_get", id=record(1)["id"])
    assert states(await take(laptop, *batch)) == expected


BAD_RECORDS = [
    "no object",
    {"content": "no id"},
    record(9, id="mem_../../x_1_abcd1234"),
    record(9, content="  \n"),
    record(9, content="a\0b"),
    record(9, content="ä" * 2_200_000),
    record(9, title="t" * 201),
    record(9, title="line\nbreak\x07"),
    record(9, tags=["x"] * 33),
    record(9, tags="one"),
    record(9, importance="enormous"),
    record(9, importance=True),
    record(9, taskId="../up"),
    record(9, created="yesterday"),
    record(9, created="9999-12-31T23:59:59-23:00"),
    record(9, relations=[{"relation": "hates", "id": record(1)["id"]}]),
    record(9, metadata={"long": "x" * 20_000}),
    record(9, metadata=[]),
    record(9, project="other"),
]


async def test_a_bad_record_is_refused_by_itself(laptop: Machine) -> None:
    for number, bad in enumerate(BAD_RECORDS):
        first, second, third = await take(laptop, record(100 + number), bad, record(200 + number))
        assert (first["state"], second["state"], third["state"]) == ("new", "refused", "new")
        assert second["why"], bad


async def test_a_batch_has_a_limit(laptop: Machine) -> None:
    with pytest.raises(RequestError, match="201"):
        await take(laptop, *(record(number) for number in range(201)))
    with pytest.raises(RequestError, match="too much text"):
        await take(laptop, *(record(number, content="x" * 1_500_000) for number in range(3)))


async def test_only_who_may_write_there_imports(daemon: Serving, agent: Agent, laptop: Machine) -> None:
    """Another caller of the space is refused, and learns nothing of notes that it does not reach."""
    assert states(await take(laptop, record(1))) == ["new"]
    async with machine(daemon, "narrow", space="laptop", projects={"mine"}) as other:
        with pytest.raises(RequestError) as refused:
            await take(other, record(2))
        assert refused.value.code == "denied"
        assert states(await take(other, record(1), project="mine", dryRun=True)) == ["new"]
    async with machine(daemon, "reader", space="laptop", scope="read") as other:
        with pytest.raises(RequestError) as refused:
            await take(other, record(2))
        assert refused.value.code == "denied"


async def test_the_tool_is_the_proxys_to_answer(agent: Agent) -> None:
    """The daemon lists it as the proxy checks it, and says so where no proxy has taken the call."""
    wire = machine_tools.IMPORT.wire()
    assert {"name": wire["name"], "inputSchema": wire["inputSchema"]} == TOOL
    assert "confide import" in await agent.refused("memory_import", paths=["NOTES.md"])
