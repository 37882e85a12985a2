"""Streams: bodies under credit, in pure channels and over a real websocket (PROTOCOL.md 7.4, 7.5)."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tests.support.crypto.channels import HOST, LAPTOP, Door, channel_pair, hosting, no_message, no_request
from tests.support.deadline import DEADLINE_S

from confide_crypto.channel.protocol import (
    MAX_PAYLOAD,
    BodyEnded,
    BodyOpened,
    Channel,
    Closed,
    CreditGranted,
    Data,
    FrameType,
    WasReset,
)
from confide_crypto.channel.streams import StreamViolation
from confide_crypto.errors import ConnectionLost, ProtocolViolation, RequestError
from confide_crypto.limits import CONNECTION_CREDIT, MAX_CREDIT, MAX_REQUESTS, STREAM_CREDIT
from confide_crypto.transport import inbox
from confide_crypto.transport.inbox import Body
from confide_crypto.transport.open_channel import Connection, connect

OnStream = Callable[[str, dict[str, Any], Body], Awaitable[dict[str, Any]]]


# -- the pure channel ---------------------------------------------------------------------------------------------


def welcomed() -> tuple[Channel, Channel]:
    client, daemon = channel_pair()
    client.receive(daemon.seal(FrameType.RES, 0, b"{}"))
    return client, daemon


def opened() -> tuple[Channel, Channel, int]:
    """Both ends with one stream of the client's under way."""
    client, daemon = welcomed()
    stream = client.open_request()
    assert daemon.receive(client.seal(FrameType.OPEN, stream, b'{"op":"x"}')) == BodyOpened(stream, b'{"op":"x"}')
    return client, daemon, stream


def raw(channel: Channel, kind: int, stream: int, payload: bytes, flags: int = 0) -> bytes:
    """A record that the channel itself would not make."""
    return channel._seal(kind, flags, stream, payload)


def test_a_body_arrives_and_is_answered() -> None:
    client, daemon, stream = opened()
    assert daemon.receive(client.seal_data(stream, b"abc")) == Data(stream, b"abc")
    assert daemon.receive(client.seal_end(stream)) == BodyEnded(stream)
    assert client.is_in_use(stream)
    client.receive(daemon.seal(FrameType.RES, stream, b"{}"))
    assert not client.is_in_use(stream)


def test_an_early_answer_keeps_the_stream_until_its_reset() -> None:
    client, daemon, stream = opened()
    client.receive(daemon.seal(FrameType.RES, stream, b"{}"))
    assert client.is_in_use(stream)
    assert daemon.receive(client.seal_data(stream, b"late")) == Data(stream, b"late")
    assert daemon.receive(client.seal_reset(stream, "answered")) == WasReset(stream, "answered")
    assert not client.is_in_use(stream)
    # The number is free again, so the peer may use it once more.
    daemon.receive(raw(client, FrameType.OPEN, stream, b"{}"))


def test_credit_is_counted_a_stream_and_in_all() -> None:
    client, daemon, stream = opened()
    sent = 0
    while credit := client.outgoing.credit_of(stream):
        piece = bytes(min(credit, MAX_PAYLOAD))
        daemon.receive(client.seal_data(stream, piece))
        sent += len(piece)
    assert sent == STREAM_CREDIT
    assert client.outgoing.credit == CONNECTION_CREDIT - STREAM_CREDIT
    with pytest.raises(StreamViolation):
        client.seal_data(stream, b"x")
    assert client.receive(daemon.seal_window(stream, 10)) == CreditGranted(stream)
    assert client.outgoing.credit_of(stream) == 10
    assert client.receive(daemon.seal_window(0, STREAM_CREDIT)) == CreditGranted(0)
    assert client.outgoing.credit == CONNECTION_CREDIT


def test_all_streams_share_the_connection_s_credit() -> None:
    client, daemon = welcomed()
    streams = []
    for _ in range(CONNECTION_CREDIT // STREAM_CREDIT + 1):
        streams.append(client.open_request())
        daemon.receive(client.seal(FrameType.OPEN, streams[-1], b"{}"))
    for stream in streams[:-1]:
        while credit := client.outgoing.credit_of(stream):
            daemon.receive(client.seal_data(stream, bytes(min(credit, MAX_PAYLOAD))))
    assert client.outgoing.credit_of(streams[-1]) == 0


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (FrameType.DATA, b""),
        (FrameType.END, bytes(39)),
        (FrameType.END, bytes(40)),
        (FrameType.WINDOW, bytes(4)),
        (FrameType.WINDOW, bytes(3)),
        (FrameType.WINDOW, struct.pack(">I", 1)),  # the daemon's credit for a stream that the daemon has not opened
        (FrameType.RESET, b"x" * 65),
        (FrameType.RESET, b"\xff"),
        (FrameType.OPEN, b"{}"),
        (0, b""),
        (12, b""),
    ],
)
def test_a_broken_frame_of_a_stream_is_fatal(kind: int, payload: bytes) -> None:
    client, daemon, stream = opened()
    with pytest.raises(ProtocolViolation):
        daemon.receive(raw(client, kind, stream, payload))
    with pytest.raises(ProtocolViolation):
        daemon.receive(client.seal_data(stream, b"more"))


@pytest.mark.parametrize("kind", [FrameType.OPEN, FrameType.DATA, FrameType.END, FrameType.WINDOW, FrameType.RESET])
@pytest.mark.parametrize("flags", [1, 2, 3, 4])
def test_frames_of_streams_carry_no_flags(kind: FrameType, flags: int) -> None:
    client, daemon, stream = opened()
    payload = {FrameType.WINDOW: struct.pack(">I", 1), FrameType.END: client.outgoing.end(stream)}.get(kind, b"x")
    number = {FrameType.OPEN: stream + 2, FrameType.WINDOW: 0}.get(kind, stream)
    with pytest.raises(ProtocolViolation):
        daemon.receive(raw(client, kind, number, payload, flags))


@pytest.mark.parametrize("kind", [FrameType.DATA, FrameType.END, FrameType.RESET])
@pytest.mark.parametrize("after", ["nothing", "end", "reset"])
def test_a_body_s_frame_without_a_body_is_fatal(kind: FrameType, after: str) -> None:
    client, daemon = welcomed()
    stream = 1
    if after != "nothing":
        client, daemon, stream = opened()
        daemon.receive(client.seal_end(stream) if after == "end" else client.seal_reset(stream, "x"))
    with pytest.raises(ProtocolViolation):
        daemon.receive(raw(client, kind, stream, b"x"))


def test_data_beyond_the_credit_is_fatal() -> None:
    client, daemon, stream = opened()
    for _ in range(STREAM_CREDIT // MAX_PAYLOAD):
        daemon.receive(client.seal_data(stream, bytes(MAX_PAYLOAD)))
    with pytest.raises(ProtocolViolation, match="credit"):
        daemon.receive(raw(client, FrameType.DATA, stream, bytes(MAX_PAYLOAD)))


def test_credit_beyond_all_measure_is_fatal() -> None:
    client, daemon, stream = opened()
    client.receive(raw(daemon, FrameType.WINDOW, stream, struct.pack(">I", MAX_CREDIT - STREAM_CREDIT)))
    with pytest.raises(ProtocolViolation, match="credit"):
        client.receive(raw(daemon, FrameType.WINDOW, stream, struct.pack(">I", 1)))


def test_a_goodbye_inside_a_body_is_fatal_and_never_sent() -> None:
    client, daemon, stream = opened()
    with pytest.raises(ConnectionLost):
        client.seal_close("done")
    with pytest.raises(ProtocolViolation, match="goodbye"):
        daemon.receive(raw(client, FrameType.CLOSE, 0, b"done"))
    client, daemon, stream = opened()
    daemon.receive(client.seal_reset(stream, "done"))
    assert daemon.receive(client.seal_close("done")) == Closed("done")
    for seal in (client.seal_end, lambda s: client.seal_data(s, b"x"), lambda s: client.seal_reset(s, "x")):
        with pytest.raises(ConnectionLost):
            seal(stream)
    with pytest.raises(ConnectionLost):
        client.seal_window(0, 1)


def test_streams_and_requests_share_one_limit() -> None:
    client, daemon = welcomed()
    for number in range(MAX_REQUESTS):
        stream = client.open_request()
        daemon.receive(client.seal(FrameType.REQ if number % 2 else FrameType.OPEN, stream, b"{}"))
    with pytest.raises(ProtocolViolation):
        daemon.receive(raw(client, FrameType.OPEN, 2 * MAX_REQUESTS + 1, b"{}"))


def test_a_body_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("confide_crypto.channel.streams.MAX_BODY", 10)
    client, daemon, stream = opened()
    daemon.receive(client.seal_data(stream, bytes(10)))
    with pytest.raises(ProtocolViolation, match="over the limit"):
        daemon.receive(raw(client, FrameType.DATA, stream, b"x"))


# -- over a websocket ---------------------------------------------------------------------------------------------


def taking(on_stream: OnStream | None) -> Callable[[Connection], Awaitable[None]]:
    async def handle(connection: Connection) -> None:
        await connection.serve(on_message=connection.send_message, on_request=no_request, on_stream=on_stream)

    return handle


async def measure(op: str, params: dict[str, Any], body: Body) -> dict[str, Any]:
    return {"op": op, **params, "length": len(await body.read(1 << 30))}


async def dial(host_url: str, group: asyncio.TaskGroup, on_message: Any = no_message) -> Connection:
    connection = await connect(host_url, LAPTOP, HOST.static_key)
    group.create_task(connection.serve(on_message=on_message, on_request=no_request))
    return connection


async def parts(*sizes: int) -> AsyncIterator[bytes]:
    for size in sizes:
        yield bytes(size)


@pytest.mark.parametrize("length", [0, 1, MAX_PAYLOAD, MAX_PAYLOAD + 1, STREAM_CREDIT, 3 * CONNECTION_CREDIT + 7])
async def test_a_body_of_any_length_is_taken_whole(door: Door, length: int) -> None:
    async with hosting(door, taking(measure)) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url, group)
        answer = await connection.upload("put", {"path": "x"}, bytes(length), timeout_s=DEADLINE_S)
        assert answer == {"op": "put", "path": "x", "length": length}
        await connection.close()


async def test_a_body_may_come_in_parts(door: Door) -> None:
    async with hosting(door, taking(measure)) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url, group)
        answer = await connection.upload("put", {}, parts(1, 0, 100_000, 2_000_000), timeout_s=DEADLINE_S)
        assert answer["length"] == 2_100_001
        await connection.close()


@pytest.mark.long
async def test_many_bodies_at_once_all_arrive(door: Door) -> None:
    """More than have credit, and more than there are places."""
    async with hosting(door, taking(measure)) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url, group)
        uploads = [
            connection.upload("put", {}, bytes(200_000 + n), timeout_s=DEADLINE_S) for n in range(2 * MAX_REQUESTS)
        ]
        answers = await asyncio.gather(*uploads)
        assert [answer["length"] for answer in answers] == [200_000 + n for n in range(2 * MAX_REQUESTS)]
        await connection.close()


async def test_a_message_overtakes_a_body(door: Door) -> None:
    """A call during an upload waits for a record, not for the file."""
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    async with hosting(door, taking(measure)) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url, group, heard.put)
        upload = group.create_task(connection.upload("put", {}, bytes(60_000_000), timeout_s=DEADLINE_S))
        for number in range(20):
            await connection.send_message(b"%d" % number)
            assert await heard.get() == b"%d" % number
        assert not upload.done()
        assert (await upload)["length"] == 60_000_000
        await connection.close()


async def test_a_body_that_is_refused_stops_and_leaves_the_link_in_order(door: Door) -> None:
    async def refuse(op: str, params: dict[str, Any], body: Body) -> dict[str, Any]:
        await body.read(100_000)
        raise AssertionError("it is larger")

    async with hosting(door, taking(refuse)) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url, group)
        for _ in range(2 * MAX_REQUESTS):  # every place is given back, and so is every byte of credit
            with pytest.raises(RequestError) as refused:
                await connection.upload("put", {}, bytes(300_000), timeout_s=DEADLINE_S)
            assert refused.value.code == "too_large"
        await connection.close()
        assert await host.ended.get() is None


async def test_a_body_that_is_given_up_is_never_used(door: Door) -> None:
    used: list[int] = []
    failures: asyncio.Queue[RequestError] = asyncio.Queue()

    begun = asyncio.Event()

    async def use(op: str, params: dict[str, Any], body: Body) -> dict[str, Any]:
        begun.set()
        try:
            used.append(len(await body.read(1 << 30)))
        except RequestError as error:
            failures.put_nowait(error)
            raise
        return {}

    async def broken() -> AsyncIterator[bytes]:
        yield bytes(50_000)
        raise OSError("the file went away")

    async with hosting(door, taking(use)) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url, group)
        with pytest.raises(OSError, match="went away"):
            await connection.upload("put", {}, broken(), timeout_s=DEADLINE_S)
        assert (await failures.get()).code == "cancelled"
        begun.clear()
        upload = asyncio.create_task(connection.upload("put", {}, bytes(200_000_000), timeout_s=DEADLINE_S))
        await begun.wait()
        upload.cancel()
        assert (await failures.get()).code == "cancelled"
        assert used == []
        await connection.upload("put", {}, b"fine", timeout_s=DEADLINE_S)
        assert used == [4]
        await connection.close()


@pytest.mark.long
async def test_bodies_that_are_given_up_unread_leave_no_hole_in_the_credit(door: Door) -> None:
    """What came of them and was never read counts as consumed, or some resets would stop all bodies for good."""
    is_reading = asyncio.Event()

    async def use(op: str, params: dict[str, Any], body: Body) -> dict[str, Any]:
        await is_reading.wait()
        return {"length": len(await body.read(1 << 30))}

    async with hosting(door, taking(use)) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url, group)
        for _ in range(2 * CONNECTION_CREDIT // STREAM_CREDIT):
            with pytest.raises(TimeoutError):
                await connection.upload("put", {}, bytes(2 * STREAM_CREDIT), timeout_s=0.1)
        is_reading.set()
        answer = await connection.upload("put", {}, bytes(2 * CONNECTION_CREDIT), timeout_s=DEADLINE_S)
        assert answer == {"length": 2 * CONNECTION_CREDIT}
        await connection.close()


async def test_a_handler_that_reads_nothing_still_answers_after_the_end(door: Door) -> None:
    async def ignore(op: str, params: dict[str, Any], body: Body) -> dict[str, Any]:
        return {"read": 0}

    async with hosting(door, taking(ignore)) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url, group)
        assert await connection.upload("put", {}, bytes(12_000_000), timeout_s=DEADLINE_S) == {"read": 0}
        await connection.close()


async def test_an_end_that_takes_no_bodies_says_so(door: Door) -> None:
    async with hosting(door, taking(None)) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url, group)
        with pytest.raises(RequestError) as refused:
            await connection.upload("put", {}, bytes(2 * STREAM_CREDIT), timeout_s=DEADLINE_S)
        assert refused.value.code == "invalid"
        with pytest.raises(RequestError) as too_large:
            await connection.upload("put", {"path": "x" * MAX_PAYLOAD}, b"", timeout_s=DEADLINE_S)
        assert too_large.value.code == "too_large"
        await connection.close()


async def test_an_ok_before_the_end_is_fatal(door: Door) -> None:
    async def lie(connection: Connection) -> None:
        event = connection._channel.receive(await connection._ws.recv(decode=False))
        assert isinstance(event, BodyOpened)
        await connection._ws.send(connection._channel.seal(FrameType.RES, event.stream, b'{"ok":{}}'))
        await connection._ws.wait_closed()

    async with hosting(door, lie) as host:
        connection = await connect(host.url, LAPTOP, HOST.static_key)
        upload = asyncio.create_task(connection.upload("put", {}, bytes(2 * STREAM_CREDIT), timeout_s=DEADLINE_S))
        with pytest.raises(ProtocolViolation, match="an ok before"):
            await connection.serve(on_message=no_message, on_request=no_request)
        with pytest.raises(ConnectionLost):
            await upload


async def test_a_body_that_stalls_is_given_up(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "BODY_STALL_S", 0.05)

    async def slow() -> AsyncIterator[bytes]:
        yield b"first"
        await asyncio.sleep(0.5)
        yield b"second"

    async with hosting(door, taking(measure)) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url, group)
        with pytest.raises(RequestError) as stalled:
            await connection.upload("put", {}, slow(), timeout_s=DEADLINE_S)
        assert stalled.value.code == "cancelled"
        await connection.close()


async def test_a_body_that_nobody_reads_stops_at_its_credit(door: Door) -> None:
    """The receiver never holds more than the window, and the rest of the link goes on."""
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    release = asyncio.Event()
    held: list[Body] = []

    async def wait(op: str, params: dict[str, Any], body: Body) -> dict[str, Any]:
        held.append(body)
        await release.wait()
        return {"length": len(await body.read(1 << 30))}

    async with hosting(door, taking(wait)) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url, group, heard.put)
        upload = group.create_task(connection.upload("put", {}, bytes(2 * STREAM_CREDIT), timeout_s=DEADLINE_S))
        for _ in range(200):
            await connection.send_message(b"ping")
            await heard.get()
        assert sum(len(piece) for piece in held[0]._pieces) == STREAM_CREDIT
        assert not upload.done()
        release.set()
        assert (await upload)["length"] == 2 * STREAM_CREDIT
        await connection.close()


async def test_closing_gives_up_what_is_under_way_and_still_says_goodbye(door: Door) -> None:
    failures: asyncio.Queue[BaseException] = asyncio.Queue()
    begun = asyncio.Event()

    async def use(op: str, params: dict[str, Any], body: Body) -> dict[str, Any]:
        begun.set()
        try:
            await body.read(1 << 30)
        except (RequestError, ConnectionLost) as error:
            failures.put_nowait(error)
            raise
        return {}

    async with hosting(door, taking(use)) as host:
        connection = await connect(host.url, LAPTOP, HOST.static_key)
        serving = asyncio.create_task(connection.serve(on_message=no_message, on_request=no_request))
        upload = asyncio.create_task(connection.upload("put", {}, bytes(100_000_000), timeout_s=DEADLINE_S))
        await begun.wait()
        await connection.close()
        with pytest.raises(ConnectionLost):
            await upload
        await serving
        assert await host.ended.get() is None
        assert isinstance(await failures.get(), RequestError | ConnectionLost)


async def test_a_link_that_breaks_fails_the_bodies_on_both_ends(door: Door) -> None:
    failures: asyncio.Queue[BaseException] = asyncio.Queue()
    begun = asyncio.Event()

    async def use(op: str, params: dict[str, Any], body: Body) -> dict[str, Any]:
        begun.set()
        try:
            await body.read(1 << 30)
        except BaseException as error:
            failures.put_nowait(error)
            raise
        return {}

    async with hosting(door, taking(use)) as host:
        connection = await connect(host.url, LAPTOP, HOST.static_key)
        serving = asyncio.create_task(connection.serve(on_message=no_message, on_request=no_request))
        upload = asyncio.create_task(connection.upload("put", {}, bytes(100_000_000), timeout_s=DEADLINE_S))
        await begun.wait()
        connection._ws.transport.abort()
        with pytest.raises(ConnectionLost):
            await upload
        with pytest.raises(ConnectionLost):
            await serving
        assert isinstance(await host.ended.get(), ConnectionLost)
        assert isinstance(await failures.get(), ConnectionLost | asyncio.CancelledError)
