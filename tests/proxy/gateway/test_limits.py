"""How much a request may bring, and how long it may take to: bodies and heads that come slowly, or without an end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from tests.support.deadline import DEADLINE_S

from confide_proxy.gateway import server
from confide_proxy.gateway.door import limits
from confide_proxy.gateway.door.guard import Guard
from confide_proxy.gateway.door.refusals import RefusalError


def request(*parts: bytes, headers: tuple[tuple[bytes, bytes], ...] = (), pause_s: float = 0.0) -> Request:
    left = [*parts]

    async def receive() -> Any:
        await asyncio.sleep(pause_s)
        part = left.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(left)}

    return Request({"type": "http", "method": "POST", "headers": [*headers]}, receive)


async def test_a_whole_body_is_read() -> None:
    assert await limits.body_of(request(b"ab", b"", b"cd")) == b"abcd"


@pytest.mark.parametrize("said", [b"5", b"99999999999999", b"-1", b"0x1", b"\xc2\xb2", b""])
async def test_a_length_that_is_too_large_or_none_is_refused_before_anything_is_read(said: bytes) -> None:
    asked = request(headers=((b"content-length", said),))
    with pytest.raises(RefusalError) as refused:
        await limits.body_of(asked, most=4)
    assert refused.value.status == 413


async def test_a_body_without_an_end_is_refused_where_it_is_too_large() -> None:
    with pytest.raises(RefusalError) as refused:
        await limits.body_of(request(*[b"x" * 1024] * 9), most=8192)
    assert refused.value.status == 413


async def test_a_body_that_comes_too_slowly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By all of its time, not by that of each part: a byte now and then would never end."""
    monkeypatch.setattr(limits, "BODY_S", 0.1)
    with pytest.raises(RefusalError) as refused:
        await limits.body_of(request(*[b"x"] * 1000, pause_s=0.01))
    assert refused.value.status == 408


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"] == "/fails":
        raise ValueError("cfd_ a canary of what was stored")
    await PlainTextResponse(await limits.body_of(Request(scope, receive)))(scope, receive, send)


@asynccontextmanager
async def listening() -> AsyncIterator[int]:
    """A server of ours with that application; its port."""
    opened = server.listen("127.0.0.1", 0)
    port = opened.getsockname()[1]
    running = server._Server(server._settings(Guard(app, lambda: port)))
    task = asyncio.create_task(running.serve(sockets=[opened]))
    try:
        yield port
    finally:
        running.should_exit = True
        await task


async def test_a_head_that_comes_too_slowly_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether nothing comes or a byte now and then, at first or behind a request that was answered."""
    monkeypatch.setattr(server, "HEAD_S", 0.2)
    whole = b"GET / HTTP/1.1\r\nHost: localhost:%d\r\n\r\n"
    async with listening() as port, asyncio.timeout(DEADLINE_S):
        for begin in (b"", b"GET / HT", whole % port + b"GET / HT"):
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


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.1", "::", "example.org", "", "127.0.0.1.evil.example"])
def test_other_addresses_are_refused(host: str) -> None:
    with pytest.raises(server.GatewayError, match="this machine alone"):
        server.loopback(host)


@pytest.mark.parametrize(
    ("host", "address"), [("localhost", "127.0.0.1"), ("127.0.0.9", "127.0.0.9"), ("::1", "::1"), ("[::1]", "::1")]
)
def test_loopback_is_taken(host: str, address: str) -> None:
    assert server.loopback(host) == address


def test_a_port_that_is_taken_is_said_to_be() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(server.GatewayError, match="is taken"):
            server.listen("127.0.0.1", other.getsockname()[1])
