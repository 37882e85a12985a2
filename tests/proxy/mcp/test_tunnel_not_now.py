"""A tool's result that means "not now" is to an agent what a broken link is: stores are kept and sent once, searches are answered here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.scripted import CALL, Message, Slow, running, text_of

from confide_crypto.errors import RequestError
from confide_daemon.errors import EngineError, LockedError, SpaceFullError, StorageError
from confide_daemon.server.mcp.tool_calls import refusal_message

AWAY = EngineError("cannot reach the database of the store", hint="is PostgreSQL running?")
NOT_NOW = (
    AWAY,
    LockedError(),
    RequestError("busy", "32 calls of this connection are running already", "wait for one of them"),
    RequestError("unavailable", "the daemon is stopping; this call was not run", "try again in a moment"),
    StorageError("cannot write: the disk is full", hint="free some space"),
)
WRITES: dict[str, dict[str, Any]] = {
    "memory_store": {"content": "We chose postgres.", "path": "memory/db.md"},
    "memory_update": {"id": "mem_1", "status": "done"},
    "memory_delete": {"id": "mem_1"},
    "memory_link": {"id": "mem_1", "relatedId": "mem_2", "relation": "see_also"},
}


def as_answered(error: Any) -> Message:
    """The result that a daemon gives for an error."""
    return refusal_message(error)


async def answer(daemon: Slow, identifier: Any, error: Any) -> None:
    await daemon.say({"id": identifier, "result": as_answered(error)})


def refuse_calls(_body: Message) -> Message:
    raise RequestError("unavailable", "cannot reach the database of the store")


@pytest.mark.parametrize("error", NOT_NOW, ids=lambda error: error.code)
async def test_what_cannot_be_stored_now_is_kept(tmp_path: Path, error: Any) -> None:
    """And sent under the id that it had, once: the daemon may have done it after all."""
    async with running(tmp_path, 'toolsets = ["all"]\n', {"call": refuse_calls}) as (setting, daemon, client):
        said = {"content": "We chose postgres.", "path": "memory/db.md"}
        client.say(7, CALL, name="memory_store", arguments=said, _meta={"confide/structured": True})
        await daemon.until(lambda: daemon.calls)
        operation = daemon.calls[0]["params"]["_meta"]["confide/operation"]
        await answer(daemon, 7, error)
        told = await client.next()
        assert told["id"] == 7
        assert told["result"]["structuredContent"]["queued"] is True
        assert str(error) in text_of(told)
        assert "isError" not in told["result"]
        del daemon.answers["call"]
        await daemon.until(lambda: daemon.operations)
        await daemon.until(lambda: not (setting.machine.home / "proxy" / "journal" / "queue").exists())
        assert daemon.operations == [operation]


async def test_every_change_is_kept(tmp_path: Path) -> None:
    async with running(tmp_path, 'toolsets = ["all"]\n', {"call": refuse_calls}) as (_, daemon, client):
        for number, (tool, arguments) in enumerate(WRITES.items()):
            client.call(number, tool, **arguments)
        await daemon.until(lambda: len(daemon.calls) == len(WRITES))
        for number in range(len(WRITES)):
            await answer(daemon, number, AWAY)
        for _ in WRITES:
            told = await client.next()
            assert "saved on this device" in text_of(told), told
            assert "isError" not in told["result"], told
        assert not daemon.operations


async def test_searches_and_reads_are_answered_from_the_files_here(tmp_path: Path) -> None:
    async with running(tmp_path) as (setting, daemon, client):
        setting.machine.write("memory/db.md", "We chose postgres for its row locks.\n")
        client.call(1, query="postgres")
        client.call(2, "memory_read", path="memory/db.md")
        await daemon.until(lambda: len(daemon.calls) == 2)
        await answer(daemon, 1, AWAY)
        await answer(daemon, 2, AWAY)
        for told in (await client.next(), await client.next()):
            assert "row locks" in text_of(told)
            assert "cannot reach the database of the store" in text_of(told)


async def test_a_search_that_meets_too_many_others_is_asked_again(tmp_path: Path) -> None:
    """Whatever it asks, if it only asks."""
    async with running(tmp_path) as (_, daemon, client):
        for tool, arguments in (("memory_search", {"query": "x"}), ("memory_status", {})):
            daemon.lines.clear()
            client.call(tool, tool, **arguments)
            await daemon.until(lambda: daemon.calls)
            await answer(daemon, tool, RequestError("busy", "32 calls are running"))
            await daemon.until(lambda: len(daemon.calls) == 2)
            await daemon.answer(tool, "found")
            assert text_of(await client.next()) == "found"


@pytest.mark.parametrize(
    "error",
    [SpaceFullError("1,000 files", "files"), RequestError("denied", "no"), RequestError("internal", "it failed")],
    ids=lambda error: error.code,
)
async def test_what_waiting_does_not_mend_is_said(tmp_path: Path, error: Any) -> None:
    """A space that holds all that it may is a person's to decide about: an agent must not believe that it is stored soon."""
    async with running(tmp_path) as (setting, daemon, client):
        client.call(7, "memory_store", content="x")
        await daemon.until(lambda: daemon.calls)
        await answer(daemon, 7, error)
        told = await client.next()
        assert told["result"]["isError"] is True
        assert text_of(told) == error.with_hint
        assert not (setting.machine.home / "proxy" / "journal" / "queue").exists()


@pytest.mark.parametrize(
    "meta",
    [
        {"confide/code": 5},
        {"confide/code": ["unavailable"]},
        {"confide/code": "storage_full", "confide/later": 1},
        [],
        3,
    ],
)
async def test_a_hostile_code_changes_nothing(tmp_path: Path, meta: Any) -> None:
    async with running(tmp_path) as (_, daemon, client):
        client.call(7, "memory_store", content="x")
        await daemon.until(lambda: daemon.calls)
        result = {"content": [{"type": "text", "text": "no"}], "isError": True, "_meta": meta}
        await daemon.say({"id": 7, "result": result})
        told = await client.next()
        assert json.loads(json.dumps(told))["result"]["isError"] is True
