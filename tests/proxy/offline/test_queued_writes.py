"""Changes of notes that are made while the daemon cannot be reached: what is answered, and what becomes of them, once."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.daemon.loopback import Machine
from tests.support.documents.notes import Agent
from tests.support.draws import draws

from confide_crypto.errors import RequestError, UnreachableError
from confide_daemon.notes.note_edit import Draft
from confide_daemon.server.mcp.tool_calls import catalogue
from confide_daemon.tools import note_fields
from confide_memory import note_names
from confide_memory.tools.call import ToolAnswer
from confide_proxy.config import ProxyConfig
from confide_proxy.link.key_rotation import MachineKeys
from confide_proxy.mcp.catalogue import ToolCatalogue
from confide_proxy.offline.journal import QueuedCall
from confide_proxy.offline.offline_calls import Offline, OfflineCall
from confide_proxy.offline.outage import Outage
from confide_proxy.paths import ProxyPaths
from confide_proxy.sealing.context import SessionSealing
from confide_proxy.sealing.sealed_calls import OF_FILES, SealedCalls
from confide_proxy.sync.project import Project

CATALOGUE = ToolCatalogue(catalogue(["all"]))
SAID = "2026-11-20T23:59:58+01:00"


class Desk:
    """A machine without a daemon."""

    def __init__(self, root: Path) -> None:
        (root / "project").mkdir()
        paths = ProxyPaths(root / "proxy.toml", root / "state", root / "global", root / "daemon")
        sealed = SealedCalls(SessionSealing(paths, ProxyConfig(), MachineKeys(paths)), "proj")
        self.offline = Offline(paths, ProxyConfig(), Project("proj", root / "project", is_git=False), sealed)
        self.trouble = Outage(UnreachableError("memory.example:7733", "connection refused"), time.time())

    async def ask(self, tool: str, **arguments: Any) -> ToolAnswer:
        described = CATALOGUE.tools[tool]
        answer = await self.offline.answer(OfflineCall(described, arguments, secrets.token_hex(16), SAID), self.trouble)
        if answer.structured is not None:
            jsonschema.validate(answer.structured, CATALOGUE.outputs[tool])
        return answer

    async def queued(self, tool: str, **arguments: Any) -> dict[str, Any]:
        answer = await self.ask(tool, **arguments)
        assert answer.structured is not None, answer.text
        assert (answer.structured["queued"], answer.structured["onDisk"]) == (True, False)
        assert "connection refused" in answer.structured["warnings"][0]
        return answer.structured

    def waiting(self) -> list[QueuedCall]:
        return self.offline.journal.waiting(frozenset({"proj", "global"}))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    root = tmp_path / "desk"
    root.mkdir()
    return Desk(root)


async def send(laptop: Machine, entry: QueuedCall) -> dict[str, Any]:
    """As the replay does."""
    body = {"project": entry.project, "operation": entry.id, "said": entry.said, "tool": entry.tool}
    answer = await laptop.request("call", {**body, "arguments": entry.arguments})
    result: dict[str, Any] = answer["result"]
    return result


async def test_what_waits_is_made_once_and_in_order(agent: Agent, laptop: Machine, desk: Desk) -> None:
    old = await agent.note("Old.")
    gone = await agent.note("Gone.")
    stored = await desk.queued(
        "memory_store", content="New.\nText.", title="Über alles", entity="Auth service", tags=["a"]
    )
    await desk.queued("memory_update", id=stored["id"], status="done", importance="high", expected_revision=1)
    await desk.queued("memory_link", id=stored["id"], relatedId=old, relation="contradicts", bidirectional=True)
    await desk.queued("memory_delete", id=gone)
    entries = desk.waiting()
    assert [entry.tool for entry in entries] == ["memory_store", "memory_update", "memory_link", "memory_delete"]
    first = [await send(laptop, entry) for entry in entries]
    # What was promised is what came: the agent may go on with the id that it got.
    assert (first[0]["id"], first[0]["path"]) == (stored["id"], stored["path"])
    files = dict(laptop.files)
    again = [await send(laptop, entry) for entry in entries]
    assert laptop.files == files
    note = await agent.call("memory_get", id=stored["id"])
    assert (note["status"], note["level"], note["title"], note["created"]) == (
        "done",
        "high",
        "Über alles",
        "2026-11-20T22:59:58Z",
    )
    assert {(one["relation"], one["direction"]) for one in note["relations"]} == {
        ("contradicts", "to"),
        ("contradicts", "from"),
    }
    assert [one["revision"] for one in (note, await agent.call("memory_get", id=old))] == [3, 2]
    assert (first[3]["deleted"], again[3]["deleted"]) == (True, True)
    assert first[3]["restorableUntil"] == again[3]["restorableUntil"]
    assert again[1]["changed"] is True
    assert "no note of that id" in await agent.refused("memory_get", id=gone)


async def test_a_deletion_that_is_sent_again_leaves_alone_what_came_back(
    agent: Agent, laptop: Machine, desk: Desk
) -> None:
    note = await agent.note("Text.")
    await desk.queued("memory_delete", id=note)
    (entry,) = desk.waiting()
    assert (await send(laptop, entry))["deleted"] is True
    await agent.call("memory_update", id=note, restoreRevision=1)
    again = await send(laptop, entry)
    assert (again["deleted"], "has come back since" in again["warnings"][0]) == (False, True)
    assert (await agent.call("memory_get", id=note))["content"] == "Text."


async def test_a_text_is_brought_back_once(agent: Agent, laptop: Machine, desk: Desk) -> None:
    note = await agent.note("First.")
    await agent.call("memory_update", id=note, content="Second.")
    await desk.queued("memory_update", id=note, restoreRevision=1)
    (entry,) = desk.waiting()
    assert (await send(laptop, entry))["content"] == "First."
    await agent.call("memory_update", id=note, content="Third.")
    again = await send(laptop, entry)
    assert (again["content"], again["revision"]) == ("Third.", 4)
    with pytest.raises(RequestError, match="used for another change"):
        await send(laptop, replace(entry, arguments={"id": note, "status": "done"}))


async def test_a_change_of_a_note_that_is_gone_by_then_is_refused(agent: Agent, laptop: Machine, desk: Desk) -> None:
    note = await agent.note("Text.")
    await desk.queued("memory_update", id=note, status="done")
    await agent.call("memory_delete", id=note)
    (entry,) = desk.waiting()
    with pytest.raises(RequestError, match="no note of that id"):
        await send(laptop, entry)


async def test_what_waits_is_sent_by_connections_that_list_fewer_tools(daemon: Any, desk: Desk) -> None:
    from tests.support.daemon.loopback import machine

    await desk.queued("memory_store", content="Text.", tags=["a"])
    stored = await desk.queued("memory_update", id="mem_nobody_1_abcdef12", status="done")
    assert stored["id"] == "mem_nobody_1_abcdef12"
    async with machine(daemon) as box:
        await box.attach("proj")
        store, update = desk.waiting()
        assert (await send(box, store))["onDisk"] is True
        with pytest.raises(RequestError, match="no note of that id"):
            await send(box, update)


@pytest.mark.parametrize(
    ("tool", "arguments", "says"),
    [
        ("memory_store", {"content": "x", "scope": "task"}, "needs 'taskId'"),
        ("memory_store", {"content": "x", "taskId": "../x"}, "folder's name"),
        ("memory_store", {"content": "x", "scope": "global", "project": "proj"}, "exclude"),
        ("memory_store", {"content": "x", "tags": ["a"], "path": "MEMORY.md"}, "file of its own"),
        ("memory_store", {"content": "x", "tags": ["a"], "project": "other"}, "cannot write to project"),
        ("memory_store", {"content": "x\x00", "tags": ["a"]}, "NUL"),
        ("memory_update", {"id": "mem_a_1_abcdef12"}, "nothing to change"),
        ("memory_update", {"id": "mem_a_1_abcdef12", "restoreRevision": 1, "status": "x"}, "a whole text"),
        ("memory_update", {"id": "mem_a_1_abcdef12", "scope": "global"}, "where its file lies"),
        ("memory_delete", {}, "one of 'id' and 'path'"),
        ("memory_link", {"id": "a", "relatedId": "a", "relation": "see_also"}, "related to itself"),
        ("memory_link", {"id": "a", "relatedId": "b", "relation": "likes"}, "must be one of"),
        ("memory_list", {}, "this tool needs the daemon"),
        ("memory_history", {"id": "a"}, "this tool needs the daemon"),
    ],
)
async def test_what_the_daemon_would_refuse_does_not_wait(
    desk: Desk, tool: str, arguments: dict[str, Any], says: str
) -> None:
    answer = await desk.ask(tool, **arguments)
    assert answer.structured is None
    assert says in answer.text
    assert desk.waiting() == []


async def test_a_note_that_waits_is_found_here(desk: Desk) -> None:
    stored = await desk.queued("memory_store", content="The bittern booms at night.", tags=["birds"])
    await desk.queued("memory_delete", path="memory/notes/other.md")
    found = await desk.ask("memory_search", query="bittern")
    assert found.structured is not None
    assert [hit["path"] for hit in found.structured["results"]] == [stored["path"]]


@settings(max_examples=draws(150), deadline=None)
@given(
    st.text(max_size=120, alphabet=st.characters(exclude_categories=["Cs"])),
    st.text(max_size=40, alphabet=st.characters(exclude_categories=["Cs", "Cc"])),
    st.text(max_size=20, alphabet=st.characters(exclude_categories=["Cs", "Cc"])),
)
@example("# Heading\ntext", "", "")
@example("- item, of a list: " + "words " * 40, "", "Straße №5")
def test_both_ends_name_a_note_alike(content: str, title: str, entity: str) -> None:
    operation = "0123456789abcdef" * 2
    arguments = {"content": content, "title": title, "entity": entity}
    draft = Draft(
        body=content,
        created=1763679598.0,
        title=" ".join(title.split()) or None,
        entity=" ".join(entity.split()) or None,
    )
    promised = note_names.names_of(arguments, "2025-11-20T23:59:58+01:00", operation)
    assert promised == draft.id_and_path(operation.encode())
    assert note_names.ID.fullmatch(promised[0])


def test_both_ends_know_a_note_by_the_same_parameters() -> None:
    parameters = set(CATALOGUE.tools["memory_store"]["inputSchema"]["properties"])
    assert set(note_fields.PROPERTIES) == parameters - OF_FILES
