"""Sessions that end, or nearly do, while something is under way in them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from typing import Any

import pytest
from tests.support.crypto.channels import Door, answering, dial, hosting, no_message, no_request
from tests.support.deadline import DEADLINE_S

from confide_crypto.channel.protocol import MAX_PAYLOAD
from confide_crypto.errors import ConnectionLost, ProtocolViolation, RequestError
from confide_crypto.limits import MAX_MESSAGE
from confide_crypto.transport.inbox import _call_on_wait
from confide_crypto.transport.open_channel import Connection

MIB = 1024 * 1024


async def test_a_handler_that_needs_another_connection_answers_when_that_is_gone(door: Door) -> None:
    """Only this connection's own end leaves a request without an answer; else its asker would wait, and its place stay taken."""

    async def on_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
        raise ConnectionLost(truncated=True)  # of the machine that would have had to be asked

    async with hosting(door, answering(on_request)) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        group.create_task(connection.serve(on_message=no_message, on_request=no_request))
        with pytest.raises(RequestError) as caught:
            await connection.request("put", {}, timeout_s=5)
        assert caught.value.code == "unavailable"
        assert not connection.is_in_use
        await connection.close()


async def test_a_message_handler_that_needs_another_connection_does_not_end_this_one(door: Door) -> None:
    """A MSG has no answer, so nobody is told; what comes after it is handled."""
    heard: list[bytes] = []

    async def handle(connection: Connection) -> None:
        async def on_message(data: bytes) -> None:
            heard.append(data)
            if data == b"1":
                raise ConnectionLost(truncated=True)

        await connection.serve(on_message=on_message, on_request=no_request)

    async with hosting(door, handle) as host:
        connection = await dial(host.url)
        for data in (b"1", b"2"):
            await connection.send_message(data)
        await connection.close()
        assert await host.ended.get() is None
    assert heard == [b"1", b"2"]


async def test_a_body_under_way_is_lost_when_the_link_breaks_while_we_close(door: Door) -> None:
    """No RESET comes any more, and its reader must not take the end of the connection for the end of the body."""
    outcome: asyncio.Queue[BaseException | str] = asyncio.Queue()
    reading: asyncio.Queue[Connection] = asyncio.Queue()

    async def handle(connection: Connection) -> None:
        async def on_stream(op: str, params: dict[str, Any], body: Any) -> dict[str, Any]:
            reading.put_nowait(connection)
            try:
                await body.read(MIB)
            except ConnectionLost as error:
                outcome.put_nowait(error)
                raise
            outcome.put_nowait("whole")
            return {}

        await connection.serve(on_message=no_message, on_request=no_request, on_stream=on_stream)

    async def parts() -> AsyncIterator[bytes]:
        yield b"one"
        await asyncio.Event().wait()

    async with hosting(door, handle) as host:
        connection = await dial(host.url)
        serving = asyncio.create_task(connection.serve(on_message=no_message, on_request=no_request))
        uploading = asyncio.create_task(connection.upload("put", {}, parts(), timeout_s=5))
        peer = await reading.get()
        closing = asyncio.create_task(peer.close())
        await asyncio.sleep(0)
        connection.abort()
        async with asyncio.timeout(10):
            lost = await outcome.get()
            assert isinstance(lost, ConnectionLost)
            assert lost.truncated
            await closing
            assert await host.ended.get() is None, "we had begun to close, so the break is no loss to us"
        serving.cancel()
        uploading.cancel()
        await asyncio.gather(serving, uploading, return_exceptions=True)


async def test_a_waiting_message_handler_is_cancelled_when_the_link_breaks(door: Door) -> None:
    """It gets to clean up, and nothing waits for what can never come."""
    began, cleaned = asyncio.Event(), asyncio.Event()

    async def handle(connection: Connection) -> None:
        async def on_message(data: bytes) -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                cleaned.set()

        await connection.serve(on_message=on_message, on_request=no_request)

    async with hosting(door, handle) as host:
        connection = await dial(host.url)
        await connection.send_message(b"{}")
        await began.wait()
        connection.abort()
        async with asyncio.timeout(20):
            assert isinstance(await host.ended.get(), ConnectionLost)
        assert cleaned.is_set()


def test_a_watched_coroutine_is_closed_with_its_watcher() -> None:
    """As when a loop ends with tasks left: the handler's own cleanup runs."""
    events: list[str] = []

    class Pause:
        def __await__(self) -> Generator[str, None, None]:
            yield "waiting"

    async def work() -> None:
        try:
            await Pause()
        finally:
            events.append("closed")

    watcher = _call_on_wait(work(), lambda: events.append("waits"))
    assert watcher.send(None) == "waiting"
    watcher.close()
    assert events == ["waits", "closed"]


async def test_a_message_that_was_cancelled_in_the_queue_is_never_sent(door: Door) -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def handle(connection: Connection) -> None:
        await connection.serve(on_message=heard.put, on_request=no_request)

    async with hosting(door, handle) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        first, second = (
            asyncio.create_task(connection.send_message(letter * (MAX_PAYLOAD + 1))) for letter in (b"1", b"2")
        )
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        group.create_task(connection.serve(on_message=no_message, on_request=no_request))
        await second
        await connection.close()
        assert await host.ended.get() is None
    assert heard.get_nowait()[:1] == b"2"
    assert heard.empty()


async def test_a_message_whose_sender_has_gone_fails_quietly_when_the_link_breaks(door: Door) -> None:
    """It had begun, so it goes on without its sender; nobody is left to be told."""
    connected: asyncio.Queue[Connection] = asyncio.Queue()
    done = asyncio.Event()

    async def hold(connection: Connection) -> None:
        connected.put_nowait(connection)
        await done.wait()

    async with hosting(door, hold) as host:
        connection = await dial(host.url)
        (await connected.get())._ws.transport.pause_reading()
        serving = asyncio.create_task(connection.serve(on_message=no_message, on_request=no_request))
        sending = asyncio.create_task(connection.send_message(bytes(MAX_MESSAGE)))
        while not connection._ws.transport.get_write_buffer_size():  # noqa: ASYNC110 - until the socket is full
            await asyncio.sleep(0.01)
        sending.cancel()
        await asyncio.sleep(0)
        connection.abort()
        async with asyncio.timeout(20):
            with pytest.raises(ConnectionLost):
                await serving
            with pytest.raises(asyncio.CancelledError):
                await sending
        done.set()


async def test_a_body_whose_connection_closes_between_two_parts_is_given_up(door: Door) -> None:
    outcome: asyncio.Queue[str] = asyncio.Queue()

    async def handle(connection: Connection) -> None:
        async def on_stream(op: str, params: dict[str, Any], body: Any) -> dict[str, Any]:
            try:
                await body.read(MIB)
            except RequestError as error:
                outcome.put_nowait(error.code)
                raise
            outcome.put_nowait("whole")
            return {}

        await connection.serve(on_message=no_message, on_request=no_request, on_stream=on_stream)

    async with hosting(door, handle) as host:
        connection = await dial(host.url)
        serving = asyncio.create_task(connection.serve(on_message=no_message, on_request=no_request))

        async def parts() -> AsyncIterator[bytes]:
            yield b"one"
            await connection.close()
            yield b"two"

        with pytest.raises(ConnectionLost):
            await connection.upload("put", {}, parts(), timeout_s=5)
        await serving
        assert await outcome.get() == "cancelled"
        assert await host.ended.get() is None


async def test_credit_for_a_stream_that_is_through_is_not_sent(door: Door) -> None:
    """What waits to be granted when the END comes would be a WINDOW for nothing, and after the end there is nobody to grant it to."""
    done = asyncio.Event()

    async def hold(connection: Connection) -> None:
        await done.wait()

    async with hosting(door, hold) as host:
        connection = await dial(host.url)
        sent = connection._outbox.records_sent
        connection._outbox.grant(7, 100)
        await connection._outbox.pump()
        assert connection._outbox.records_sent == sent
        assert not connection._outbox.is_busy
        done.set()
        await connection.close()
        connection._outbox.grant(0, 100)
        assert not connection._outbox._grants


async def test_a_connection_says_whether_it_is_in_use(door: Door) -> None:
    go_on = asyncio.Event()
    peers: asyncio.Queue[Connection] = asyncio.Queue()

    async def handle(connection: Connection) -> None:
        async def on_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
            peers.put_nowait(connection)
            await go_on.wait()
            return {}

        await connection.serve(on_message=no_message, on_request=on_request)

    async with hosting(door, handle) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        group.create_task(connection.serve(on_message=no_message, on_request=no_request))
        assert not connection.is_in_use
        asking = group.create_task(connection.request("put", {}))
        peer = await peers.get()
        assert connection.is_in_use
        assert peer.is_in_use
        go_on.set()
        await asking
        assert not connection.is_in_use
        await connection.close()


async def test_who_waits_for_an_answer_hears_that_the_peer_broke_the_protocol(door: Door) -> None:
    async def handle(connection: Connection) -> None:
        await connection._ws.send("text")
        await connection.serve(on_message=no_message, on_request=no_request)

    async with hosting(door, handle) as host, asyncio.timeout(DEADLINE_S):
        connection = await dial(host.url)
        asking = asyncio.create_task(connection.request("status", {}))
        await asyncio.sleep(0)  # it takes its first step
        with pytest.raises(ProtocolViolation):
            await connection.serve(on_message=no_message, on_request=no_request)
        with pytest.raises(ConnectionLost, match="broke the protocol: a text frame"):
            await asking
