"""Connections that bring nothing, or come in great number; and what a fault of ours tells."""

from __future__ import annotations

import asyncio
import gc
import ssl
import sys
import weakref
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import Receive, Scope, Send
from tests.support.deadline import DEADLINE_S
from tests.support.network.certificates import certificate

from confide_http.door import request_limits, serving
from confide_http.door.guard import LOOPBACK, GatewayNames, Guard
from confide_http.door.pacing import Pace, RequestTurns, Rests

MOST = 8
WHOLE = b"GET / HTTP/1.1\r\nHost: localhost:%d\r\n\r\n"
LESS_THAN_ASYNCIO_S = 40
"""Which waits for a handshake for a minute."""
MORE_THAN_IS_KEPT = 2**26
"""Of what is sent, between two programs on one machine."""
OTHER = "127.0.0.2"
"""Another address that leads to and comes from this machine, on Linux."""

PUBLIC = Pace(RequestTurns(per_second=10_000))
"""As a daemon's, but that nobody has to wait for a turn."""


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"] == "/fails":
        raise ValueError("cfd_ a canary of what was stored")
    if scope["path"] == "/works":
        await send({"type": "http.response.start", "status": 200, "headers": []})  # the sign that it is at work
        await asyncio.Event().wait()
    if scope["path"] == "/refused":
        return await PlainTextResponse("no", 401)(scope, receive, send)
    if scope["path"] == "/known":
        scope["state"][serving.KNOWN] = True
    if scope["path"] == "/large":
        parts = (b"x" * 2**18 for _ in range(64))
        return await StreamingResponse(parts)(scope, receive, send)
    body = await request_limits.body_of(Request(scope, receive), within_s=DEADLINE_S)
    return await PlainTextResponse(body or b"x")(scope, receive, send)


@asynccontextmanager
async def listening(pace: Pace | None = PUBLIC, *, tls: tuple[Path, Path] | None = None) -> AsyncIterator[int]:
    """A server of ours with that application, and room for few; its port. `tls`: its certificate, and the key of it."""
    opened = serving.listen("127.0.0.1", 0)
    port = opened.getsockname()[1]
    names = GatewayNames({f"{name}:{port}" for name in LOOPBACK})
    cert, key = tls or (None, None)
    guarded = Guard(app, names, hint="the log")
    running = serving.EmbeddedServer(serving.settings(guarded, most_connections=MOST, cert=cert, key=key), pace=pace)
    task = asyncio.create_task(running.serve(sockets=[opened]))
    try:
        yield port
    finally:
        running.should_exit = True
        await task


@pytest.mark.parametrize("pace", [PUBLIC, None], ids=["public", "loopback"])
async def test_a_head_that_comes_too_slowly_is_cut_off(pace: Pace | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether nothing comes or a byte now and then, at first or behind a request that was answered."""
    monkeypatch.setattr(serving, "HEAD_S", 0.2)
    monkeypatch.setattr(serving, "FIRST_S", 0.1)
    async with listening(pace) as port, asyncio.timeout(DEADLINE_S):
        for begin in (b"", b"GET / HT", WHOLE % port + b"GET / HT"):
            await cut_off(port, begin)


async def cut_off(port: int, begin: bytes) -> None:
    """Until the other end closes a connection on which a byte comes now and then."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(begin)

    async def trickle() -> None:
        while begin:
            writer.write(b"T")
            await asyncio.sleep(0.02)

    trickling = asyncio.create_task(trickle())
    with suppress(ConnectionResetError):
        await reader.read()
    trickling.cancel()
    writer.close()


async def test_a_fault_of_ours_tells_nobody_what_was_stored(caplog: pytest.LogCaptureFixture) -> None:
    async with listening() as port, asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /fails HTTP/1.1\r\nHost: localhost:%d\r\nConnection: close\r\n\r\n" % port)
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 500")
    assert b"canary" not in answer
    assert "ValueError at " in caplog.text
    assert "canary" not in caplog.text


class Visitor:
    """A connection of somebody's."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        self.reader, self.writer, self.port = reader, writer, port

    @classmethod
    async def come(cls, port: int, *, address: str = "127.0.0.1") -> Visitor:
        return cls(*await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0)), port)

    def ask(self, path: str = "/", *, more: bytes = b"") -> None:
        """`more`: lines of the head."""
        self.writer.write(b"GET %s HTTP/1.1\r\nHost: localhost:%d\r\n%s\r\n" % (path.encode(), self.port, more))

    async def is_answered(self, path: str = "/") -> bool:
        """Whether a request is, on the connection that there is."""
        self.ask(path)
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
            return head.startswith(b"HTTP/1.1 200") and await self.reader.readexactly(1) == b"x"
        except (OSError, asyncio.IncompleteReadError):
            self.writer.close()
            return False


@pytest.mark.parametrize("pace", [PUBLIC, None], ids=["public", "loopback"])
@pytest.mark.skipif(sys.platform == "darwin", reason="it has one address of its own")
async def test_nobody_keeps_others_out_with_connections(pace: Pace | None) -> None:
    """Whoever has most of them loses one for each that comes: those that have asked, those that have not, and those that take no answer."""
    async with listening(pace) as port, asyncio.timeout(DEADLINE_S):
        friend = await Visitor.come(port, address=OTHER)
        assert await friend.is_answered()
        flood = []
        for path in (None, "/", "/large") * MOST:
            one = await Visitor.come(port)
            flood.append(one)
            if path:
                one.ask(path)
            assert await friend.is_answered()
        late = await Visitor.come(port, address=OTHER)
        assert await late.is_answered()
        for each in (*flood, friend, late):
            each.writer.close()


async def test_room_is_made_without_a_look_at_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others wait for the same loop: where each that came was a look at all there were, a thousand took a daemon three seconds."""
    looks = 0
    waits: Any = serving.ThrottledProtocol.waits

    def looked_at(one: serving.ThrottledProtocol) -> bool:
        nonlocal looks
        looks += 1
        return bool(waits.fget(one))

    monkeypatch.setattr(serving.ThrottledProtocol, "waits", property(looked_at))
    async with listening() as port, asyncio.timeout(DEADLINE_S):
        flood = [await Visitor.come(port) for _ in range(5 * MOST)]
        assert await flood[-1].is_answered()
        assert 0 < looks <= len(flood)
        for each in flood:
            each.writer.close()


async def test_who_takes_no_answer_keeps_no_place() -> None:
    """An answer that nobody reads is at work for ever; it goes where somebody else wants to come in."""
    async with listening() as port, asyncio.timeout(DEADLINE_S):
        mute = [await Visitor.come(port) for _ in range(MOST - 1)]
        for each in mute:
            each.writer.transport.pause_reading()
            each.ask("/large")
        again = await Visitor.come(port)
        while not await again.is_answered():  # until what was sent has filled all that lies between
            again = await Visitor.come(port)
        for each in (*mute, again):
            each.writer.transport.abort()


async def test_who_does_not_bring_its_body_keeps_no_place() -> None:
    """Nothing is at work there, but waits for its client."""
    async with listening() as port, asyncio.timeout(DEADLINE_S):
        slow = []
        for _ in range(2 * MOST):
            slow.append(await Visitor.come(port))
            slow[-1].ask(more=b"Content-Length: 9\r\nExpect: 100-continue\r\n")
            assert await slow[-1].reader.readuntil(b"100 Continue\r\n")  # it is waited for
        again = await Visitor.come(port)
        assert await again.is_answered()
        for each in (*slow, again):
            each.writer.close()


@pytest.mark.parametrize("pace", [PUBLIC, None], ids=["public", "loopback"])
async def test_where_all_are_at_work_who_comes_is_not_let_in(pace: Pace | None) -> None:
    """What somebody waits for is not given up; and there is room again once one of them leaves."""
    async with listening(pace) as port, asyncio.timeout(DEADLINE_S):
        workers = []
        for _ in range(MOST - 1):
            workers.append(await Visitor.come(port))
            workers[-1].ask("/works")
            assert await workers[-1].reader.readuntil(
                b"\r\n\r\n"
            )  # else there would be somebody to give up for who comes
        late = await Visitor.come(port)
        assert not await late.is_answered()
        for each in workers:
            assert not each.reader.at_eof()
            each.writer.close()
        again = await Visitor.come(port)
        while not await again.is_answered():
            again = await Visitor.come(port)
        late.writer.close()
        again.writer.close()
        await again.writer.wait_closed()


@pytest.mark.parametrize("how", ["its client leaves", "its client breaks off", "it makes room", "it is refused"])
async def test_a_connection_that_has_ended_leaves_nothing_to_collect(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To look for what a flood of them leaves stopped the loop again and again, and machines wait for it."""
    came, gone = asyncio.Event(), asyncio.Event()
    kept: list[weakref.ref[asyncio.Transport]] = []
    made = serving.ThrottledProtocol.connection_made

    def noted(one: serving.ThrottledProtocol, transport: asyncio.Transport) -> None:
        if not kept:
            kept.append(weakref.ref(transport, lambda _ref: gone.set()))
        made(one, transport)
        came.set()

    monkeypatch.setattr(serving.ThrottledProtocol, "connection_made", noted)
    async with listening() as port, asyncio.timeout(DEADLINE_S):
        one = await Visitor.come(port)
        await came.wait()
        gc.disable()
        try:
            if how == "it is refused":
                one.ask("/refused")
                assert await one.reader.readuntil(b"\r\n\r\nno")
            others = [await Visitor.come(port) for _ in range(MOST * (how == "it makes room"))]
            if how == "its client breaks off":
                one.writer.transport.abort()
            elif how != "it makes room":
                one.writer.close()
            await gone.wait()
        finally:
            gc.enable()
        for each in (one, *others):
            each.writer.close()


class Asked(RequestTurns):
    """Turns that are given by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: asyncio.Queue[Callable[[], None]] = asyncio.Queue()

    def wait(self, holder: Hashable, begin: Callable[[], None]) -> None:
        self.waiting.put_nowait(begin)


async def test_connections_are_taken_in_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many wait: each costs the loop a tenth of a millisecond, and a flood kept it from those whom it serves."""
    turns = Asked()
    monkeypatch.setattr(serving, "RequestTurns", lambda **_options: turns)
    async with listening() as port, asyncio.timeout(DEADLINE_S):
        first, second = await Visitor.come(port), await Visitor.come(port)
        take_in = await turns.waiting.get()
        second.ask()
        take_in()
        assert await first.is_answered()
        assert turns.waiting.qsize() == 1
        (await turns.waiting.get())()
        assert await second.reader.readuntil(b"\r\n\r\nx")
        for each in (first, second):
            each.writer.close()


async def test_requests_of_strangers_wait_for_their_turn_and_those_of_the_known_do_not() -> None:
    """Who has shown a good token on a connection goes on there."""
    turns = Asked()
    async with listening(Pace(turns)) as port, asyncio.timeout(DEADLINE_S):
        stranger, known = await Visitor.come(port), await Visitor.come(port)
        stranger.ask()
        held = await turns.waiting.get()
        known.ask("/known")
        (await turns.waiting.get())()
        assert await known.reader.readuntil(b"\r\n\r\nx")
        assert await known.is_answered("/known")
        assert not stranger.reader._buffer  # type: ignore[attr-defined]
        held()
        assert await stranger.reader.readuntil(b"\r\n\r\nx")
        stranger.ask()
        (await turns.waiting.get())()
        assert await stranger.reader.readuntil(b"\r\n\r\nx")
        for each in (stranger, known):
            each.writer.close()


async def test_half_a_head_is_read_on_after_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes meanwhile is left where it is, until it is read in one."""
    resting: asyncio.Queue[Callable[[], None]] = asyncio.Queue()
    reads: list[bytes] = []
    receive = serving.ThrottledProtocol.data_received

    def received(one: serving.ThrottledProtocol, data: bytes) -> None:
        reads.append(data)
        receive(one, data)

    monkeypatch.setattr(serving.ThrottledProtocol, "data_received", received)
    monkeypatch.setattr(Rests, "rest", lambda _self, resume: resting.put_nowait(resume))
    async with listening() as port, asyncio.timeout(DEADLINE_S):
        slow, other = await Visitor.come(port), await Visitor.come(port)
        slow.writer.write(b"GET / HT")
        resume = await resting.get()
        for each in b"TP/1.1\r\nHost: localhost:%d\r\n\r\n" % port:
            slow.writer.write(bytes([each]))
            await slow.writer.drain()
        assert await other.is_answered()
        assert len(reads) == 2
        resume()
        assert await slow.reader.readuntil(b"\r\n\r\nx")
        assert len(reads) == 3
        for one in (slow, other):
            one.writer.close()


async def test_bodies_of_strangers_are_read_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """However large their pieces; who has shown a good token is read as it comes."""
    resting: asyncio.Queue[Callable[[], None]] = asyncio.Queue()
    monkeypatch.setattr(Rests, "rest", lambda _self, resume: resting.put_nowait(resume))
    turns = Asked()
    async with listening(Pace(turns)) as port, asyncio.timeout(DEADLINE_S):
        for path in ("/", "/known"):
            one = await Visitor.come(port)
            one.ask(path, more=b"Content-Length: 9000\r\nExpect: 100-continue\r\n")
            (await turns.waiting.get())()
            assert await one.reader.readuntil(b"100 Continue\r\n")
            one.writer.write(b"x" * 1000)
            read_on = await resting.get() if path == "/" else None
            one.writer.write(b"x" * 8000)  # there at once, and so read in one
            if read_on is not None:
                read_on()
            assert await one.reader.readuntil(b"x" * 9000)
            assert resting.empty()
            one.writer.close()


async def test_what_is_sent_behind_a_refusal_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is refused before the body has come can read why, and is cut off."""
    monkeypatch.setattr(serving, "LINGER_S", 0.2)
    monkeypatch.setattr(serving, "HEAD_S", 1000)
    async with listening() as port, asyncio.timeout(DEADLINE_S):
        one = await Visitor.come(port)
        one.ask("/refused", more=b"Content-Length: 900000000000\r\n")
        assert (await one.reader.readuntil(b"\r\n\r\nno")).startswith(b"HTTP/1.1 401")
        sent = 0
        with suppress(OSError):
            while sent < MORE_THAN_IS_KEPT and not one.reader.at_eof():
                one.writer.write(b"x" * 2**16)
                await one.writer.drain()
                sent += 2**16
        assert sent < MORE_THAN_IS_KEPT
        one.writer.transport.abort()


async def test_a_handshake_of_tls_is_not_waited_for_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "HANDSHAKE_S", 0.1)
    async with listening(tls=certificate(tmp_path)) as port, asyncio.timeout(LESS_THAN_ASYNCIO_S):
        one = await Visitor.come(port)
        with suppress(ConnectionResetError):
            assert await one.reader.read() == b""
        one.writer.close()


async def test_handshakes_of_tls_that_do_not_come_keep_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have few places: each holds a file and some memory, and what comes on it is read at once."""
    monkeypatch.setattr(serving, "HANDSHAKE_S", 1000.0)
    monkeypatch.setattr(serving, "MOST_HANDSHAKES", MOST)
    cert, key = certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=cert)
    async with listening(tls=(cert, key)) as port, asyncio.timeout(LESS_THAN_ASYNCIO_S):
        friend = Visitor(*await asyncio.open_connection("127.0.0.1", port, ssl=trusting), port)
        assert await friend.is_answered()
        mute = [await Visitor.come(port) for _ in range(3 * MOST)]
        for each in mute[: -(MOST - 1)]:
            with suppress(ConnectionResetError):
                assert await each.reader.read() == b""
        late = Visitor(*await asyncio.open_connection("127.0.0.1", port, ssl=trusting), port)
        assert await late.is_answered()
        for one in (*mute, friend, late):
            one.writer.transport.abort()
