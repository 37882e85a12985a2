"""A session that is told to connect anew: what comes behind that is asked again elsewhere, where it may be asked twice."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Machine, serving
from tests.support.deadline import DEADLINE_S

from confide_crypto.errors import RequestError
from confide_daemon.server.mcp.tool_calls import may_be_asked_again


def call(tool: str, identifier: int = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identifier, "method": "tools/call", "params": {"name": tool, "arguments": {}}}


@pytest.mark.parametrize(
    ("message", "may"),
    [
        (call("memory_search"), True),
        (call("memory_store"), True),
        (call("memory_sync"), False),
        (call("secret_get"), False),
        (call("no such tool"), False),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/call"}, False),
        ({"jsonrpc": "2.0", "id": 1, "method": "resources/list"}, True),
        ({"jsonrpc": "2.0", "method": "notifications/initialized"}, False),
        ({"jsonrpc": "2.0", "id": 1, "result": {}}, False),
        ([], False),
    ],
    ids=str,
)
def test_what_may_be_asked_again_is_what_a_machine_repeats(message: Any, may: bool) -> None:
    assert may_be_asked_again(json.dumps(message).encode()) is may
    assert not may_be_asked_again(b"no json")


@pytest.mark.parametrize(("word", "answered"), [("restart", [2]), ("shutdown", [1, 2])])
async def test_a_call_behind_a_restart_is_left_to_the_next_connection(
    tmp_path: Path, word: str, answered: list[int]
) -> None:
    """It is not refused, so that its agent does not hear of it; what may not be asked twice is. Nobody goes on after a shutdown."""
    async with serving(tmp_path / "data") as daemon, Machine(await daemon.connect(daemon.enroll("laptop"))) as laptop:
        await laptop.attach("proj")
        (session,) = daemon.daemon.sessions
        under_way = asyncio.Event()
        call_under_way = asyncio.create_task(under_way.wait())
        session._under.running.add(call_under_way)
        call_under_way.add_done_callback(session._under.running.discard)  # as those of the session do
        closing = asyncio.create_task(session.close(word))
        async with asyncio.timeout(DEADLINE_S):
            while not laptop.connection.is_going_away:  # noqa: ASYNC110 - nothing tells when
                await asyncio.sleep(0.01)
            for number, tool in ((1, "memory_search"), (2, "memory_sync")):
                await laptop.connection.send_message(json.dumps(call(tool, number)).encode())
            told: list[int] = []
            while 2 not in told:
                item: Any = await laptop._received.receive()
                told.append(json.loads(item.message.model_dump_json())["id"])
            under_way.set()
            await closing
        assert told == answered
        assert laptop.connection.close_code == word


async def test_a_call_behind_a_change_of_the_key_is_left_to_the_next_connection(tmp_path: Path) -> None:
    """An agent must not read that its access has ended: the device's new key has that access."""
    async with serving(tmp_path / "data") as daemon, Machine(await daemon.connect(daemon.enroll("laptop"))) as laptop:
        await laptop.attach("proj")
        (session,) = daemon.daemon.sessions
        session.end_reason = "rotated"
        await laptop.connection.send_message(json.dumps(call("memory_status", 1)).encode())
        with pytest.raises(RequestError):
            await laptop.connection.request("unknown", {}, timeout_s=DEADLINE_S)  # read behind it
        session.end_reason = None
        await laptop.connection.send_message(json.dumps(call("memory_status", 2)).encode())
        item: Any = await laptop._received.receive()
        assert json.loads(item.message.model_dump_json())["id"] == 2
