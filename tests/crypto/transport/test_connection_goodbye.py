"""The orderly end of a session: what was sent arrives, and everything after says so (PROTOCOL.md 7.6)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.crypto.channels import Door, answering, dial, echo, hosting, no_message, no_request

from confide_crypto.errors import ConnectionLost
from confide_crypto.transport.open_channel import Connection


async def test_what_was_sent_before_the_goodbye_arrives(door: Door) -> None:
    heard: list[bytes] = []

    async def handle(connection: Connection) -> None:
        async def on_message(data: bytes) -> None:
            await asyncio.sleep(0)
            heard.append(data)

        await connection.serve(on_message=on_message, on_request=no_request)

    async with hosting(door, handle) as host:
        connection = await dial(host.url)
        serving = asyncio.create_task(connection.serve(on_message=no_message, on_request=no_request))
        sent = [str(number).encode() for number in range(200)]
        for data in sent:
            await connection.send_message(data)
        await connection.close()
        assert await host.ended.get() is None
        await serving
    assert heard == sent


async def test_closing_sends_what_still_waits(door: Door) -> None:
    heard: list[bytes] = []

    async def handle(connection: Connection) -> None:
        async def on_message(data: bytes) -> None:
            heard.append(data)

        await connection.serve(on_message=on_message, on_request=no_request)

    async with hosting(door, handle) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        sending = group.create_task(connection.send_message(bytes(500_000)))
        await asyncio.sleep(0)
        await connection.close()
        await sending
        assert await host.ended.get() is None
    assert heard == [bytes(500_000)]


async def test_after_the_end_everything_says_so(door: Door) -> None:
    async with hosting(door, echo) as host:
        connection = await dial(host.url)
        await connection.close()
        await connection.close()
        with pytest.raises(ConnectionLost):
            await connection.send_message(b"{}")
        with pytest.raises(ConnectionLost):
            await connection.request("put", {})
        await connection.serve(on_message=no_message, on_request=no_request)
        with pytest.raises(RuntimeError, match="served once"):
            await connection.serve(on_message=no_message, on_request=no_request)


async def test_a_request_under_way_ends_when_the_peer_says_goodbye(door: Door) -> None:
    async def handle(connection: Connection) -> None:
        async def on_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
            await connection.close("restart")
            return {}

        await connection.serve(on_message=no_message, on_request=on_request)

    async with hosting(door, handle) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        serving = group.create_task(connection.serve(on_message=no_message, on_request=no_request))
        with pytest.raises(ConnectionLost) as caught:
            await connection.request("put", {})
        assert not caught.value.truncated
        await serving
    assert connection.close_code == "restart"


async def test_a_peer_that_goes_away_gets_no_new_requests(door: Door) -> None:
    async def handle(connection: Connection) -> None:
        await connection.go_away()
        await echo(connection)

    async with hosting(door, handle) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        group.create_task(connection.serve(on_message=heard.put, on_request=no_request))
        await connection.send_message(b"still fine")
        assert await heard.get() == b"still fine"
        assert connection.is_going_away
        with pytest.raises(ConnectionLost, match="going away"):
            await connection.request("put", {})
        await connection.close()


async def test_no_task_outlives_serve(door: Door) -> None:
    async def forever(op: str, body: dict[str, Any]) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    before = asyncio.all_tasks()
    async with hosting(door, answering(forever)) as host:
        connection = await dial(host.url)
        serving = asyncio.create_task(connection.serve(on_message=no_message, on_request=no_request))
        with pytest.raises(TimeoutError):
            await connection.request("hang", {}, timeout_s=0.05)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        await connection.close()
        await host.ended.get()
    assert asyncio.all_tasks() == before
