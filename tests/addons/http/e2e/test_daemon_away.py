"""With the daemon out of reach the gateway answers as `confide mcp` does: from this machine's files, and stores wait, whose word they are
not forgotten. And what is asked of one that is slow is asked of the memory as it is when the answer is made."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Literal, NamedTuple

import mcp_types
import pytest
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from tests.support.network.relay import RecordingRelay
from tests.support.programs.gateway import Answer, Gateway, serving
from tests.support.programs.panel import Visit, words_of
from tests.support.programs.processes import Daemon, Machine, running_daemon, wait_until

from confide_http.local.upstream import ENVELOPE, PROTOCOL


class Away(NamedTuple):
    """A gateway whose daemon is behind a cable."""

    gateway: Gateway
    daemon: Daemon
    relay: RecordingRelay


@pytest.fixture(scope="module")
def away(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Away]:
    folder = tmp_path_factory.mktemp("away")
    with running_daemon(folder) as daemon, RecordingRelay(daemon.port) as relay:
        machine = Machine(folder, "ann")
        machine.write("MEMORY.md", "# Birds\n\nThe heron fishes at dawn.\n")
        machine.run("join", daemon.invite("ann", port=relay.port))
        with serving(machine) as gateway:
            yield Away(gateway, daemon, relay)


def is_up(gateway: Gateway, token: str) -> bool:
    told = gateway.request("GET", "/health", token=token).json
    return bool(told["link"]["state"] == "up" and told["status"] == "ok")


def test_searches_are_answered_and_stores_wait(away: Away) -> None:
    gateway, _, relay = away
    machine = gateway.machine
    writer = gateway.token("writer", "--scope", "write")
    limited = gateway.token("limited", "--scope", "write", "--project", machine.json("status")["project"] or "project")
    wait_until("the link", lambda: is_up(gateway, writer))
    relay.cut()
    body = {"content": "Storks come back in March.", "title": "Storks"}
    kept = gateway.request("POST", "/api/memories", body, token=writer)
    assert (kept.status, kept.json["queued"]) == (202, True)
    found = gateway.request("POST", "/api/memories/recall", {"query": "when does the heron fish"}, token=writer).json
    assert found["searchMode"] == "offline"
    assert "dawn" in found["memories"][0]["content"]
    # Nobody but the daemon keeps it to its projects.
    refused = gateway.request("POST", "/api/memories", {"content": "x"}, token=limited)
    assert (refused.status, refused.code) == (503, "unavailable"), refused.body
    assert refused.headers["retry-after"]
    told = gateway.request("GET", "/health", token=writer).json
    assert (told["status"], told["reason"], told["link"]["state"]) == ("degraded", "link", "down")
    assert gateway.request("GET", "/health").json["status"] == "ok"  # it lives
    relay.mend()
    wait_until("the link", lambda: is_up(gateway, writer))
    wait_until(
        "what waited",
        lambda: gateway.request("GET", f"/api/memories/{kept.json['id']}", token=writer).status == 200,
    )
    got = gateway.request("GET", f"/api/memories/{kept.json['id']}", token=writer).json
    assert (got["content"], got["class"]) == ("Storks come back in March.", "untrusted")


class Handle(mcp_types.Result):
    """What a client gets for a call that takes long."""

    result_type: Literal["task"] = "task"
    task_id: str


class Task(mcp_types.Result):
    status: str
    result: dict[str, Any] | None = None


class TaskParams(mcp_types.RequestParams):
    task_id: str


class GetTask(mcp_types.Request[TaskParams, Literal["tasks/get"]]):
    name_param: ClassVar[str | None] = "taskId"
    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams


class Tasks(ClientExtension):
    """The extension, as a client of the official SDK has it. `resumed` is called once there is a handle."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self, resumed: Callable[[], None]) -> None:
        self.handles: list[str] = []
        self._resumed = resumed

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Handle, resolve=self._resolve)]

    async def _resolve(self, handle: Handle, context: ClaimContext) -> mcp_types.CallToolResult:
        self.handles.append(handle.task_id)
        self._resumed()
        while True:
            found = await context.session.send_request(GetTask(params=TaskParams(task_id=handle.task_id)), Task)
            if found.status != "working":
                return mcp_types.CallToolResult.model_validate(found.result)
            await asyncio.sleep(0.1)


async def test_a_long_call_of_the_official_client_is_a_task(away: Away) -> None:
    """It gets a handle while the daemon stands still, and the result once it goes on; another token has no such task."""
    gateway, daemon, _ = away
    writer, reader = gateway.token("writer", "--scope", "write"), gateway.token("reader")
    await asyncio.to_thread(wait_until, "the link", lambda: is_up(gateway, writer))
    tasks = Tasks(lambda: daemon.signal(signal.SIGCONT))
    try:
        async with gateway.session(writer, "2026-07-28", extensions=[tasks]) as client:
            await asyncio.to_thread(daemon.signal, signal.SIGSTOP)
            done = await client.call_tool("memory_sync", {})
    finally:
        daemon.signal(signal.SIGCONT)
    assert not done.is_error, done.content
    assert len(tasks.handles) == 1
    meta = dict(ENVELOPE)
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"taskId": tasks.handles[0], "_meta": meta}}
    headers = {"MCP-Protocol-Version": PROTOCOL, "Mcp-Method": "tasks/get", "Mcp-Name": tasks.handles[0]}
    own = gateway.request("POST", "/mcp", asked, token=writer, headers=headers)
    assert own.json["result"]["status"] == "completed"
    assert (
        "no such task" in gateway.request("POST", "/mcp", asked, token=reader, headers=headers).json["error"]["message"]
    )
    wrong = gateway.request("POST", "/mcp", asked, token=writer, headers=headers | {"Mcp-Name": "made-up"})
    assert wrong.json["error"]["code"] == -32020


Asked = tuple[str, str, Any, dict[str, str]]


def held(away: Away, token: str, *asked: Asked) -> list[Answer]:
    """The answers to requests that all lie at the daemon before it looks at any of them."""
    gateway, daemon, relay = away
    with ThreadPoolExecutor(len(asked)) as threads:
        daemon.signal(signal.SIGSTOP)
        try:
            answers = []
            for method, path, body, headers in asked:
                before = len(relay.captured)
                answers.append(threads.submit(gateway.request, method, path, body, token=token, headers=headers))
                wait_until("the request to be under way", lambda at=before: len(relay.captured) > at)
        finally:
            daemon.signal(signal.SIGCONT)
        return [answer.result() for answer in answers]


def test_of_two_that_expect_one_revision_one_is_made(away: Away) -> None:
    """Whatever they do to it: the look and the write are one step of the daemon's. The other one is told 412, and nothing of it is done."""
    gateway = away.gateway
    writer = gateway.token("writer", "--scope", "write")
    wait_until("the link", lambda: is_up(gateway, writer))
    file = "/api/documents/project/memory/egret.md"
    for number, condition in enumerate(({"If-None-Match": "*"}, {"If-Match": '"1"'}), 1):
        puts: list[Asked] = [("PUT", file, {"content": f"Egret {number}{each}.\n"}, condition) for each in "ab"]
        one, other = held(away, writer, *puts)
        assert sorted((one.status, other.status)) == [201 if number == 1 else 200, 412]
        assert "stale" in (one.code if one.status == 412 else other.code)
        winner = "a" if one.status != 412 else "b"
        now = gateway.request("GET", file, token=writer)
        assert (now.json["content"], now.headers["etag"]) == (f"Egret {number}{winner}.", f'"{number}"')

    note = gateway.request("POST", "/api/memories", {"content": "Bitterns boom."}, token=writer).json
    path, condition = f"/api/memories/{note['id']}", {"If-Match": '"1"'}
    deleted, changed = held(
        away, writer, ("DELETE", path, None, condition), ("PATCH", path, {"content": "Bitterns hide."}, condition)
    )
    # A note that is gone before the look is not there, whatever was expected of it (RFC 9110, 13.2.1).
    assert (deleted.status, changed.status) in ((200, 404), (200, 412), (412, 200))
    left = gateway.request("GET", path, token=writer)
    assert left.status == (404 if deleted.status == 200 else 200)
    assert deleted.status == 200 or left.json["content"] == "Bitterns hide."


def test_how_all_stands_is_told_at_once(away: Away) -> None:
    """A slow daemon keeps nobody from the page: it tells what this machine knows, comes again by itself, and is whole then."""
    visit = Visit.begin(away.gateway)
    away.daemon.signal(signal.SIGSTOP)
    try:
        begun = visit.get("health")
        assert "is on its way" in words_of(begun)
        assert "queue ok empty" in words_of(begun)  # which needs no daemon
        assert begun.headers["refresh"] == "1"
    finally:
        away.daemon.signal(signal.SIGCONT)
    whole = wait_until("the figures", lambda: "refresh" not in (found := visit.get("health")).headers and found)
    assert "index: words" in words_of(whole)
