"""Limits inside a session: who waits for whom, and what is held meanwhile (PROTOCOL.md 6.5, 6.6, 7.2)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.crypto.channels import Door, answering, dial, hosting, no_message, no_request
from tests.support.deadline import DEADLINE_S

from confide_crypto.channel.protocol import MAX_PAYLOAD, FrameType
from confide_crypto.errors import ConnectionLost, RequestError
from confide_crypto.limits import MAX_HELD, MAX_MESSAGE, MAX_REQUESTS, MAX_WAITING_MESSAGES
from confide_crypto.transport.inbox import Body
from confide_crypto.transport.open_channel import Connection, Timers
from confide_crypto.transport.outbox import MAX_WAITING

MIB = 1024 * 1024


async def test_more_requests_than_the_limit_wait_for_their_turn(door: Door) -> None:
    """And all of them are answered; at no time are more than 64 with the peer."""
    at_once = most = 0

    async def on_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        return {"n": body["n"]}

    async with hosting(door, answering(on_request)) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        group.create_task(connection.serve(on_message=no_message, on_request=no_request))
        answers = await asyncio.gather(*(connection.request("count", {"n": n}) for n in range(500)))
        assert [answer["n"] for answer in answers] == list(range(500))
        await connection.close()
    assert 1 < most <= MAX_REQUESTS


async def test_a_small_request_does_not_wait_for_a_big_one(door: Door) -> None:
    """Lanes are chosen anew at every record, so an upload under way holds nobody up."""
    order: list[str] = []

    async def on_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
        order.append(op)
        return {}

    async with hosting(door, answering(on_request)) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        group.create_task(connection.serve(on_message=no_message, on_request=no_request))
        upload = group.create_task(connection.request("upload", {"text": "x" * 8_000_000}, bulk=True))
        while not connection._outbox.records_sent:  # noqa: ASYNC110 - nothing tells when the first record is out
            await asyncio.sleep(0)
        await connection.request("search", {})
        assert order == ["search"]
        await upload
        await connection.close()
    assert order == ["search", "upload"]


async def test_a_bulk_request_that_timed_out_in_the_queue_is_never_sent(door: Door) -> None:
    """And it gives its place back."""
    seen: list[str] = []

    async def on_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
        seen.append(op)
        return {}

    async with hosting(door, answering(on_request)) as host:
        connection = await dial(host.url)
        for _ in range(2 * MAX_REQUESTS):
            with pytest.raises(TimeoutError):
                await connection.request("late", {}, timeout_s=0.001, bulk=True)  # nobody serves yet
        async with asyncio.TaskGroup() as group:
            group.create_task(connection.serve(on_message=no_message, on_request=no_request))
            await connection.request("now", {}, bulk=True)
            await connection.close()
    assert seen == ["now"]


async def test_a_request_that_timed_out_before_the_queue_gives_its_place_back(door: Door) -> None:
    """A queue full of messages that a peer does not read costs the request, not the connection's places for requests."""
    release = asyncio.Event()
    seen: list[str] = []

    async def on_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
        seen.append(op)
        return {}

    async def on_message(_data: bytes) -> None:
        return

    async def late_reader(connection: Connection) -> None:
        await release.wait()
        await connection.serve(on_message=on_message, on_request=on_request)

    async with hosting(door, late_reader) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        group.create_task(connection.serve(on_message=no_message, on_request=no_request))
        messages = [group.create_task(connection.send_message(bytes(MIB // 4))) for _ in range(MAX_WAITING + 60)]
        while not connection._outbox._room[False].locked():  # noqa: ASYNC110 - nothing tells when the queue is full
            await asyncio.sleep(0)
        for _ in range(2 * MAX_REQUESTS):
            with pytest.raises(TimeoutError):
                await connection.request("late", {}, timeout_s=0.001)
        release.set()
        await asyncio.gather(*messages)
        await asyncio.gather(*(connection.request("now", {}) for _ in range(MAX_REQUESTS)))
        await connection.close()
    assert seen.count("now") == MAX_REQUESTS


async def test_slow_handlers_slow_the_peer_down_instead_of_filling_the_memory(door: Door) -> None:
    """Over 32 MiB in handlers' hands nothing more is read; when they end it goes on."""
    go_on = asyncio.Event()
    held: list[int] = []

    async def handle(connection: Connection) -> None:
        async def on_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
            held.append(connection._inbox._held_bytes)
            await go_on.wait()
            return {}

        await connection.serve(on_message=no_message, on_request=on_request)

    async with hosting(door, handle) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        group.create_task(connection.serve(on_message=no_message, on_request=no_request))
        text = "x" * (8 * 1024 * 1024)
        uploads = [
            group.create_task(connection.request("put", {"text": text}, timeout_s=DEADLINE_S)) for _ in range(10)
        ]
        while len(held) < 4:  # noqa: ASYNC110 - as many as there is room for
            await asyncio.sleep(0.01)
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert len(held) <= 5
        go_on.set()
        await asyncio.gather(*uploads)
        await connection.close()
    assert len(held) == 10
    assert max(held) <= MAX_HELD + MAX_MESSAGE


async def test_messages_that_wait_for_a_slow_handler_are_bounded_and_stay_in_order(door: Door) -> None:
    """Beyond 256 nothing more is read; all of them are handled in the end."""
    go_on, most, handled = asyncio.Event(), 0, []
    count = 3 * MAX_WAITING_MESSAGES

    async def handle(connection: Connection) -> None:
        async def on_message(data: bytes) -> None:
            nonlocal most
            await go_on.wait()
            most = max(most, len(connection._inbox._waiting))
            handled.append(int(data))

        await connection.serve(on_message=on_message, on_request=no_request)

    async with hosting(door, handle) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        group.create_task(connection.serve(on_message=no_message, on_request=no_request))
        for number in range(count):
            await connection.send_message(b"%d" % number)
        await asyncio.sleep(0.1)
        go_on.set()
        await connection.close()
        assert await host.ended.get() is None
    assert handled == list(range(count))
    assert most <= MAX_WAITING_MESSAGES


async def test_messages_that_wait_for_a_place_in_the_queue_are_not_overtaken(door: Door) -> None:
    """Neither by one that comes when the queue has just been emptied and they have not taken their places yet."""
    release = asyncio.Event()
    seen: list[int] = []

    async def on_message(data: bytes) -> None:
        seen.append(int(data[:8]))

    async def late_reader(connection: Connection) -> None:
        await release.wait()
        await connection.serve(on_message=on_message, on_request=no_request)

    async with hosting(door, late_reader) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        group.create_task(connection.serve(on_message=no_message, on_request=no_request))
        sending = []
        for number in range(2000):
            padding = bytes(MIB // 4) if number < 60 else b""
            sending.append(group.create_task(connection.send_message(b"%08d" % number + padding)))
            if number > 600:
                release.set()
                await asyncio.sleep(0)
        await asyncio.gather(*sending)
        await connection.close()
    assert seen == list(range(2000))


async def test_nothing_is_read_until_enough_has_been_handled(door: Door) -> None:
    """45 MiB in handlers' hands: the end of one of 10 is not enough for the next request to be read."""
    begun: list[str] = []
    ends = {name: asyncio.Event() for name in ("a", "b", "c", "d", "e")}
    news = asyncio.Condition()

    async def on_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
        async with news:
            begun.append(op)
            news.notify_all()
        await ends[op].wait()
        return {}

    async def until(count: int) -> None:
        async with news, asyncio.timeout(20):
            await news.wait_for(lambda: len(begun) >= count)

    async with hosting(door, answering(on_request)) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        group.create_task(connection.serve(on_message=no_message, on_request=no_request))
        asked = {}
        for name, size in (("a", 10), ("b", 10), ("c", 10), ("d", 15), ("e", 0)):
            asked[name] = group.create_task(connection.request(name, {"text": "x" * size * MIB}, timeout_s=DEADLINE_S))
            await until(min(4, len(asked)))
        ends["a"].set()
        await asked["a"]
        assert begun == ["a", "b", "c", "d"]
        ends["b"].set()
        await until(5)
        for end in ends.values():
            end.set()
        await asyncio.gather(*asked.values())
        await connection.close()


async def test_a_message_over_the_limit_is_our_own_mistake_and_harms_nothing(door: Door) -> None:
    async def handle(connection: Connection) -> None:
        await connection.serve(on_message=connection.send_message, on_request=no_request)

    async with hosting(door, handle) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        group.create_task(connection.serve(on_message=heard.put, on_request=no_request))
        with pytest.raises(ValueError, match="over the limit"):
            await connection.send_message(bytes(MAX_MESSAGE + 1))
        await connection.send_message(b"still fine")
        assert await heard.get() == b"still fine"
        await connection.close()


class _Toll:
    """Writes down what is paid, and lets nothing more be read after a number of records."""

    def __init__(self, free: int = 1_000_000) -> None:
        self.records: list[float] = []
        self.paid: list[str] = []
        self.free = free

    def record(self, price: float) -> float:
        self.records.append(price)
        return 0.0 if len(self.records) < self.free else 3600.0

    async def request(self, data: bytes) -> None:
        self.paid.append(f"request of {len(data)}")
        if b"refused" in data:
            raise RequestError("busy", "not now")

    def charge(self, length: int) -> None:
        self.paid.append(f"answer of {length}")


async def test_a_request_is_paid_for_record_by_record_and_before_it_is_parsed(door: Door) -> None:
    """Also what is no request: a peer cannot keep the reader busy with keepalives for nothing."""
    toll, asked = _Toll(), []

    async def handle(connection: Connection) -> None:
        async def on_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
            asked.append(op)
            return {}

        async def on_stream(op: str, params: dict[str, Any], body: Body) -> dict[str, Any]:
            return {"length": len(await body.read(MIB))}

        await connection.serve(on_message=no_message, on_request=on_request, on_stream=on_stream, toll=toll)

    async with hosting(door, handle) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        group.create_task(connection.serve(on_message=no_message, on_request=no_request))
        await connection.request("small", {})
        assert toll.records[:1] == [0.0]
        assert toll.paid == ["request of 14", "answer of 9"]
        await connection.request("long", {"text": "x" * 10 * MAX_PAYLOAD})
        assert toll.records[1:] == [1.0] * 10 + [0.0]
        with pytest.raises(RequestError, match="not now"):
            await connection.request("refused", {})
        assert asked == ["small", "long"]
        del toll.records[:]
        await connection.upload("body", {}, bytes(4 * MAX_PAYLOAD), timeout_s=DEADLINE_S)
        assert toll.records == [0.0, 0.25, 0.25, 0.25, 0.25, 1.0]
        del toll.records[:]
        for _ in range(3):
            await connection._outbox.send(FrameType.KEEPALIVE, 0, b"")
        await connection.request("small", {})
        assert toll.records == [1.0, 1.0, 1.0, 0.0]
        await connection.close()


async def test_a_peer_that_owes_too_much_is_not_read(door: Door) -> None:
    """And its session ends with its line, not with what it owes."""
    toll, ended = _Toll(free=100), asyncio.Event()

    async def handle(connection: Connection) -> None:
        serving = asyncio.create_task(connection.serve(on_message=no_message, on_request=no_request, toll=toll))
        await ended.wait()
        connection.abort()
        with pytest.raises(ConnectionLost):
            await asyncio.wait_for(serving, DEADLINE_S)

    async with hosting(door, handle, timers=Timers(idle_s=3600.0)) as host:
        connection = await dial(host.url)
        serving = asyncio.create_task(connection.serve(on_message=no_message, on_request=no_request))
        sending = asyncio.create_task(connection.request("long", {"text": "x" * 15 * MIB}, timeout_s=DEADLINE_S))
        while len(toll.records) < 100:  # noqa: ASYNC110 - the daemon's side has no event for it
            await asyncio.sleep(0.01)
        sent = -1
        while sent != connection._outbox.records_sent:  # the socket takes what it can hold, then no more
            sent = connection._outbox.records_sent
            await asyncio.sleep(0.2)
        assert len(toll.records) == 100
        assert sent < 15 * MIB // MAX_PAYLOAD
        ended.set()
        with pytest.raises(ConnectionLost):
            await sending
        await asyncio.gather(serving, return_exceptions=True)
        assert await host.ended.get() is None
