"""Sessions that are cut, fall silent or break a rule: never taken for complete (PROTOCOL.md 6.7, 7.6, 7.7)."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from tests.support.crypto.channels import Door, answering, dial, echo, hosting, no_message, no_request
from tests.support.deadline import DEADLINE_S

from confide_crypto.channel.protocol import MAX_PAYLOAD, FrameType
from confide_crypto.errors import ConnectionLost, ProtocolViolation
from confide_crypto.limits import MAX_MESSAGE, MAX_REQUESTS, Timers
from confide_crypto.transport.open_channel import Connection


@pytest.mark.parametrize("how", ["cut", "websocket close"])
async def test_an_end_without_goodbye_is_truncation_on_both_sides(door: Door, how: str) -> None:
    """A proxy on the way can cut TCP or send a polite websocket close; neither passes for a complete session (PROTOCOL.md 7.6)."""
    stay = asyncio.Event()

    async def on_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
        await stay.wait()
        return {}

    async with hosting(door, answering(on_request)) as host:
        connection = await dial(host.url)
        serving = asyncio.create_task(connection.serve(on_message=no_message, on_request=no_request))
        asking = asyncio.create_task(connection.request("put", {}))
        await asyncio.sleep(0)
        if how == "cut":
            connection._ws.transport.abort()
        else:
            await connection._ws.close()
        for task in (serving, asking):
            with pytest.raises(ConnectionLost) as caught:
                await task
            assert caught.value.truncated
        ended = await host.ended.get()
        assert isinstance(ended, ConnectionLost)
        assert ended.truncated


async def test_a_cut_wakes_everybody_who_waits(door: Door) -> None:
    """Requests with the peer, requests behind the limit, and messages in the queue; nobody sits out a deadline."""

    async def never(op: str, body: dict[str, Any]) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async with hosting(door, answering(never)) as host:
        connection = await dial(host.url)
        serving = asyncio.create_task(connection.serve(on_message=no_message, on_request=no_request))
        waiting = [
            asyncio.create_task(connection.request("hang", {}, timeout_s=DEADLINE_S)) for _ in range(3 * MAX_REQUESTS)
        ]
        waiting += [asyncio.create_task(connection.send_message(bytes(MAX_MESSAGE))) for _ in range(3)]
        await asyncio.sleep(0)
        connection._ws.transport.abort()
        async with asyncio.timeout(20):
            outcomes = await asyncio.gather(serving, *waiting, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {ConnectionLost}
        await host.ended.get()


async def test_a_cut_upload_is_never_delivered(door: Door) -> None:
    async with hosting(door, answering(no_request)) as host:
        connection = await dial(host.url)
        for _ in range(20):
            record = connection._channel.seal(FrameType.REQ, 1, b"x" * MAX_PAYLOAD, more=True)
            await connection._ws.send(record)
        await connection.close()  # half sent, so there is no goodbye
        ended = await host.ended.get()
    assert isinstance(ended, ConnectionLost)
    assert ended.truncated


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("text", "text frame"),
        (b"", "wrong length"),
        (bytes(272), "not authentic"),
        (bytes(65535), "wrong length"),
        ((FrameType.REQ, 1, b"\xff"), "not JSON"),
        ((FrameType.REQ, 1, b"[]"), "not a JSON object"),
        ((FrameType.REQ, 1, b"{}"), "without op"),
        ((FrameType.REQ, 1, b"[" * 16000), "not JSON"),
        ((FrameType.DATA, 1, b""), "does not belong"),
    ],
    ids=["text", "empty", "garbage", "huge", "not UTF-8", "list", "no op", "nested", "type"],
)
async def test_a_broken_rule_ends_the_session_at_once(door: Door, what: Any, reason: str) -> None:
    async with hosting(door, answering(no_request)) as host:
        connection = await dial(host.url)
        record = connection._channel.seal(*what) if isinstance(what, tuple) else what
        await connection._ws.send(record)
        ended = await host.ended.get()
        assert isinstance(ended, ProtocolViolation)
        assert reason in str(ended)
        with pytest.raises(ConnectionLost) as caught:
            await connection.serve(on_message=no_message, on_request=no_request)
        assert caught.value.truncated
        assert "4401" in str(caught.value)


@pytest.mark.parametrize("answer", [b"{}", b"null", b'{"ok":1}', b'{"error":"x"}', b"\xff"])
async def test_an_answer_of_no_known_form_ends_the_session(door: Door, answer: bytes) -> None:
    async def handle(connection: Connection) -> None:
        await connection._ws.recv()
        connection._channel._answering.add(1)
        await connection._ws.send(connection._channel.seal(FrameType.RES, 1, answer))
        await connection._ws.wait_closed()

    async with hosting(door, handle) as host:
        connection = await dial(host.url)
        serving = asyncio.create_task(connection.serve(on_message=no_message, on_request=no_request))
        with pytest.raises(ConnectionLost):
            await connection.request("put", {})
        with pytest.raises(ProtocolViolation):
            await serving


async def test_a_silent_line_is_kept_and_a_dead_one_given_up(door: Door) -> None:
    """Keepalives pass inside the channel, where nobody on the way can answer them; without any the session ends."""
    quick, patient = Timers(keepalive_s=0.02, idle_s=0.3), Timers(keepalive_s=60, idle_s=0.3)

    async with hosting(door, echo, timers=quick) as host:
        connection = await dial(host.url, timers=quick)
        serving = asyncio.create_task(connection.serve(on_message=no_message, on_request=no_request))
        while connection._inbox.records_received < 30:  # far longer than the idle limit
            await asyncio.wait({serving}, timeout=0.01)
            assert not serving.done()
        await connection.close()
        await serving
        assert await host.ended.get() is None

        mute = await dial(host.url, timers=patient)
        ended = await host.ended.get()
        assert isinstance(ended, ConnectionLost)
        assert ended.truncated
        assert "no sign of life" in str(ended)
        mute._ws.transport.abort()


async def test_a_sign_of_life_that_cannot_be_sent_ends_nothing_by_itself(door: Door) -> None:
    """How a session has ended is told by what was read, not by the keepalive that found the line cut."""
    quick, held, tried = Timers(keepalive_s=0.02, idle_s=DEADLINE_S), asyncio.Event(), asyncio.Event()

    async with hosting(door, echo) as host:
        connection = await dial(host.url, timers=quick)
        send = connection._outbox.send

        async def refused(kind: FrameType, stream: int, payload: bytes, *, bulk: bool = False) -> None:
            if kind != FrameType.KEEPALIVE or held.is_set():
                return await send(kind, stream, payload, bulk=bulk)
            tried.set()
            raise ConnectionLost(truncated=True)

        connection._outbox.send = refused  # type: ignore[method-assign]
        serving = asyncio.create_task(connection.serve(on_message=no_message, on_request=no_request))
        await asyncio.wait_for(tried.wait(), DEADLINE_S)
        held.set()
        assert not serving.done()
        await connection.close()
        await serving
        assert await host.ended.get() is None


async def test_a_peer_that_does_not_read_is_given_up(door: Door) -> None:
    """Its keepalives alone do not keep a session whose other half is stuck."""
    quick = Timers(keepalive_s=0.05, idle_s=0.5)
    ended = asyncio.Event()

    async def handle(connection: Connection) -> None:
        connection._ws.transport.pause_reading()
        while not ended.is_set():
            await connection._ws.send(connection._channel.seal(FrameType.KEEPALIVE, 0, b""))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), 0.02)
        connection._ws.transport.abort()

    async with hosting(door, handle) as host:
        connection = await dial(host.url, timers=quick)
        serving = asyncio.create_task(connection.serve(on_message=no_message, on_request=no_request))
        with pytest.raises(ConnectionLost):
            await connection.send_message(bytes(MAX_MESSAGE))
        with pytest.raises(ConnectionLost, match="no sign of life"):
            await serving
        assert connection._inbox.records_received > 5, "the peer did send"
        ended.set()
