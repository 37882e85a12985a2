"""Handles for calls that take long: what a client gets that knows MCP's tasks, by SEP-2663 (2026-07-28)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.scripted import CALL, Client, Message, running

from confide_proxy.mcp.features import task_handles
from confide_proxy.mcp.features.task_handles import MAX_TASKS, TaskHandles, is_understood
from confide_proxy.mcp.jsonrpc import PendingCall

VERSION = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
KNOWS = VERSION | {"io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
TEXT = {"content": [{"type": "text", "text": "3 files compared"}], "resultType": "complete"}


def syncs(client: Client, identifier: Any, **meta: Any) -> None:
    client.say(identifier, CALL, name="memory_sync", arguments={}, _meta=meta)


async def asked(client: Client, method: str, task_id: Any, meta: Message | None = None) -> Message:
    client.say("about", method, taskId=task_id, _meta=VERSION if meta is None else meta)
    said = await client.next()
    assert said["id"] == "about"
    return said


async def test_a_long_call_gets_a_handle_and_its_result_when_it_is_asked_for(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, daemon, client):
        client.say("d", "server/discover", _meta=VERSION)
        assert (await client.next())["result"]["capabilities"]["extensions"] == {"io.modelcontextprotocol/tasks": {}}
        syncs(client, 7, **KNOWS, progressToken=3)
        given = (await client.next())["result"]
        assert (given["resultType"], given["status"]) == ("task", "working")
        assert given["ttlMs"] > given["pollIntervalMs"] > 0
        assert given["createdAt"].endswith("Z")
        told = {"progressToken": 3, "progress": 40, "total": 300}
        await daemon.say({"method": "notifications/progress", "params": told})
        while "statusMessage" not in (seen := (await asked(client, "tasks/get", given["taskId"]))["result"]):
            assert (seen["status"], seen["resultType"]) == ("working", "complete")
        assert seen["statusMessage"] == "40 of 300"
        client.cancel(7)  # a task is not cancelled by the notification for calls
        await daemon.say({"id": 7, "result": TEXT})
        while (seen := (await asked(client, "tasks/get", given["taskId"]))["result"])["status"] == "working":
            pass
        assert (seen["status"], seen["result"]) == ("completed", TEXT)
        assert (await asked(client, "tasks/update", given["taskId"]))["result"] == {"resultType": "complete"}
        assert (await asked(client, "tasks/cancel", given["taskId"]))["result"] == {"resultType": "complete"}
        assert (await asked(client, "tasks/get", given["taskId"]))["result"]["status"] == "completed"


async def test_a_task_is_cancelled_at_the_daemon_too(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, daemon, client):
        syncs(client, 7, **KNOWS)
        task_id = (await client.next())["result"]["taskId"]
        assert (await asked(client, "tasks/cancel", task_id))["result"] == {"resultType": "complete"}
        await daemon.until(lambda: daemon.messages[-1]["method"] == "notifications/cancelled")
        await daemon.say({"id": 7, "result": TEXT})
        assert (await asked(client, "tasks/get", task_id))["result"]["status"] == "cancelled"


async def test_a_daemon_that_goes_away_ends_the_task_with_a_sentence(tmp_path: Path) -> None:
    async with running(tmp_path) as (setting, _, client):
        syncs(client, 7, **KNOWS)
        task_id = (await client.next())["result"]["taskId"]
        await setting.close()
        while (seen := (await asked(client, "tasks/get", task_id))["result"])["status"] == "working":
            pass
        assert seen["status"] == "completed"
        assert seen["result"]["isError"] is True
        assert "may have taken effect" in seen["result"]["content"][0]["text"]


async def test_who_does_not_know_tasks_gets_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a call that others than the three long tools make. An older client has no such method."""
    async with running(tmp_path) as (_, daemon, client):
        syncs(client, 7, **VERSION)
        client.say(8, CALL, name="memory_status", arguments={}, _meta=KNOWS)
        syncs(client, 9, **KNOWS)
        assert (await client.next())["id"] == 9
        for identifier in (7, 8):
            await daemon.say({"id": identifier, "result": TEXT})
            assert (await client.next())["result"] == TEXT
        for wrong in ("made-up", "", None, 7, ["x"]):
            assert (await asked(client, "tasks/get", wrong))["error"]["code"] == -32602
        client.say("old", "tasks/get", taskId="x")
        await daemon.until(lambda: daemon.messages[-1]["method"] == "tasks/get")


@pytest.mark.parametrize(
    "meta",
    [
        {},
        VERSION,
        {key: value for key, value in KNOWS.items() if key not in VERSION},
        VERSION | {"io.modelcontextprotocol/clientCapabilities": {"extensions": ["io.modelcontextprotocol/tasks"]}},
        VERSION | {"io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": 1}}},
        VERSION | {"io.modelcontextprotocol/clientCapabilities": 7},
    ],
)
def test_the_extension_is_declared_on_the_call_itself(meta: Message) -> None:
    assert is_understood(call_of(1, KNOWS))
    assert not is_understood(call_of(1, meta))


def call_of(identifier: int, meta: Message) -> PendingCall:
    message = {"id": identifier, "method": CALL, "params": {"name": "memory_sync", "_meta": meta}}
    return PendingCall(message, b"", "memory_sync", is_repeatable=False)


def get(handles: TaskHandles, call: PendingCall) -> Message:
    request = {"id": "g", "method": "tasks/get", "params": {"taskId": call.task_id}}
    return handles.answer(PendingCall(request, b"", None, is_repeatable=False))[0]


def test_handles_are_few_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that have ended make room for new ones; while all are at work there is none."""
    handles, calls = TaskHandles(), [call_of(number, KNOWS) for number in range(MAX_TASKS + 1)]
    for call in calls[:MAX_TASKS]:
        assert handles.has_room()
        handles.create(call)
    assert not handles.has_room()
    handles.settle(calls[3], {"result": {"content": []}})
    assert get(handles, calls[3])["result"]["status"] == "completed"
    assert handles.has_room()
    handles.create(calls[MAX_TASKS])
    assert "error" in get(handles, calls[3])
    assert "result" in get(handles, calls[4])
    now = task_handles.time.time()
    monkeypatch.setattr(task_handles.time, "time", lambda: now + task_handles.TTL_MS / 1000 + 1)
    assert handles.has_room()
    assert "error" in get(handles, calls[4])


def test_a_result_that_is_too_large_is_not_kept() -> None:
    handles, call = TaskHandles(), call_of(1, KNOWS)
    handles.create(call)
    handles.settle(call, {"result": {"content": [{"type": "text", "text": "x" * task_handles.MAX_RESULT_BYTES}]}})
    seen = get(handles, call)["result"]
    assert (seen["status"], seen["error"]["code"]) == ("failed", -32603)
