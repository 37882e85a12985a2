"""Handles over HTTP for calls that take long: each of its token alone, few, and ended with the token."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.deadline import DEADLINE_S

from confide_http.door.refusals import RefusalError
from confide_http.door.request_limits import MAX_STREAMS_EACH
from confide_http.local.gateway_app import GatewayShared
from confide_http.local.request_identity import READ, RequestIdentity
from confide_http.local.streamable import task_calls
from confide_http.local.streamable.task_calls import TaskCalls
from confide_http.local.upstream import ToolResponse, UpstreamSession
from confide_proxy.config import ProxyConfig
from confide_proxy.mcp.jsonrpc import INVALID_PARAMS, PendingCall
from confide_proxy.paths import ProxyPaths
from confide_proxy.sync.project import Project

DONE: ToolResponse = {"result": {"content": [{"type": "text", "text": "3 files compared"}]}}
ANN, BOB = (RequestIdentity(name, name, frozenset({READ}), is_of_token=False) for name in ("ann", "bob"))


@pytest.fixture
async def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GatewayShared:
    monkeypatch.setattr(task_calls, "HANDLE_AFTER_S", 0.01)
    paths = ProxyPaths(tmp_path / "proxy.toml", tmp_path / "proxy", tmp_path / "global", tmp_path / "daemon")
    config = ProxyConfig()
    return GatewayShared(paths, config, UpstreamSession(paths, config, Project("shop", tmp_path, is_git=False)))


def request(method: str, **params: Any) -> PendingCall:
    return PendingCall({"id": 1, "method": method, "params": params}, b"", None, is_repeatable=False)


class Work:
    """A call that ends when it is told to."""

    def __init__(self) -> None:
        self.end: asyncio.Future[ToolResponse] = asyncio.get_running_loop().create_future()
        self.follow: Any = None

    async def __call__(self, follow: Any) -> ToolResponse:
        self.follow = follow
        return await self.end


async def handed(tasks: TaskCalls, work: Work, identity: RequestIdentity = ANN) -> str:
    outcome = await tasks.outcome(identity, request("tools/call", name="memory_sync"), work, None)
    assert outcome["result"]["resultType"] == "task"
    return str(outcome["result"]["taskId"])


def about(tasks: TaskCalls, task_id: str, method: str = "tasks/get", identity: RequestIdentity = ANN) -> Any:
    return tasks.answer(identity, request(method, taskId=task_id))


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not is_so():  # noqa: ASYNC110 - each turn of the loop may bring it
            await asyncio.sleep(0)


async def seen(tasks: TaskCalls, task_id: str) -> Any:
    """What there is to see of a task that has ended."""
    await until(lambda: about(tasks, task_id)["result"]["status"] != "working")
    return about(tasks, task_id)["result"]


async def test_a_long_call_goes_on_without_its_request_and_for_its_token_alone(gateway: GatewayShared) -> None:
    tasks, work = TaskCalls(gateway), Work()
    task_id = await handed(tasks, work)
    assert gateway.streams.uses == 1, "the gateway does not end for want of work"
    work.follow("notifications/progress", {"progress": 40, "total": 300})
    assert about(tasks, task_id)["result"]["statusMessage"] == "40 of 300"
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        assert about(tasks, task_id, method, BOB)["error"]["code"] == INVALID_PARAMS
    work.end.set_result(DONE)
    found = await seen(tasks, task_id)
    assert (found["status"], found["result"]) == ("completed", DONE["result"])
    assert gateway.streams.uses == 0


async def test_who_leaves_before_the_handle_takes_the_call_back(
    gateway: GatewayShared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_calls, "HANDLE_AFTER_S", 600.0)
    work = Work()
    asking = asyncio.create_task(TaskCalls(gateway).outcome(ANN, request("tools/call"), work, None))
    await until(lambda: work.follow is not None)
    asking.cancel()
    await asyncio.wait({asking})
    await until(work.end.cancelled)


async def test_a_cancelled_task_and_one_whose_gateway_ends(gateway: GatewayShared) -> None:
    tasks, taken_back, ended, refused = TaskCalls(gateway), Work(), Work(), Work()
    first, second, third = [await handed(tasks, work) for work in (taken_back, ended, refused)]
    assert about(tasks, first, "tasks/cancel") == {"result": {"resultType": "complete"}}
    assert about(tasks, first)["result"]["status"] == "cancelled"
    refused.end.set_exception(RefusalError(503, "unavailable", "the daemon is away"))
    assert "the daemon is away" in (await seen(tasks, third))["error"]["message"]
    gateway.end()
    assert (await seen(tasks, second))["status"] == "failed"
    assert taken_back.end.cancelled()
    assert ended.end.cancelled()


async def test_without_room_a_call_is_waited_for(gateway: GatewayShared, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its token has too many of them, or too many tokens have some."""
    tasks, works = TaskCalls(gateway), [Work() for _ in range(MAX_STREAMS_EACH + 1)]
    for work in works[:-1]:
        await handed(tasks, work)
    monkeypatch.setattr(task_calls, "MAX_CALLERS", 1)
    room, looked = tasks._room, list[str]()
    monkeypatch.setattr(tasks, "_room", lambda identity: (looked.append(identity.key), room(identity))[1])
    other = Work()
    asking = [
        asyncio.create_task(tasks.outcome(identity, request("tools/call"), work, None))
        for identity, work in ((ANN, works[-1]), (BOB, other))
    ]
    await until(lambda: len(looked) == 2)
    for work in (works[-1], other):
        work.end.set_result(DONE)
    assert await asyncio.gather(*asking) == [DONE, DONE]
    for work in works[:-1]:
        work.end.set_result(DONE)
    await until(lambda: not gateway.streams.uses)
    assert await handed(tasks, Work(), BOB), "those that have ended make room"
