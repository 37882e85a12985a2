"""A rate: some at once, then so many a second, and no more; and the handshakes that are bounded by one."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.clock import Clock
from tests.support.crypto.channels import HOST, LAPTOP, Door, dial, echo, hosting
from websockets.asyncio.client import connect as dial_websocket

from confide_crypto.errors import BusyError, HandshakeError, UnreachableError
from confide_crypto.handshake.handshake import ClientHandshake
from confide_crypto.limits import websocket_options
from confide_daemon.server.limits import Handshakes, TokenBucket


def test_a_burst_passes_and_then_one_at_a_time() -> None:
    clock = Clock()
    bucket = TokenBucket(2.0, 3.0, clock=clock)
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    clock.now = 0.5
    assert [bucket.take() for _ in range(2)] == [True, False]
    clock.now = 1000.0
    assert [bucket.take() for _ in range(4)] == [True, True, True, False], "no more is saved up than the burst"


def test_whoever_may_wait_is_told_how_long() -> None:
    clock = Clock()
    bucket = TokenBucket(2.0, 1.0, clock=clock)
    assert bucket.borrow(1.0) == 0.0
    assert bucket.borrow(1.0) == pytest.approx(0.5)
    assert bucket.borrow(1.0) == pytest.approx(1.0)
    assert bucket.borrow(1.0) is None, "a wait over the limit is no wait, and costs nothing"
    clock.now = 0.5
    assert bucket.borrow(1.0) == pytest.approx(1.0)


def test_it_is_full_again_once_everything_is_paid_back() -> None:
    clock = Clock()
    bucket = TokenBucket(2.0, 2.0, clock=clock)
    assert bucket.is_full
    bucket.take()
    assert not bucket.is_full
    clock.now = 0.5
    assert bucket.is_full


async def test_half_open_handshakes_are_bounded_and_the_next_client_is_told_to_wait() -> None:
    handshakes = Handshakes(half_open=3)
    async with hosting(Door(LAPTOP.public_key), echo, slot=handshakes.slot) as host:
        idle = [await dial_websocket(host.url, **websocket_options()) for _ in range(3)]
        while handshakes.half_open < 3:  # noqa: ASYNC110 - the daemon's side has no event for it
            await asyncio.sleep(0)
        with pytest.raises(UnreachableError, match="too many handshakes") as caught:
            await dial(host.url)
        assert "try again" in (caught.value.hint or "")
        assert isinstance(await host.refused.get(), BusyError)
        for ws in idle:
            await ws.close()
        for _ in idle:
            await host.refused.get()
        session = await dial(host.url)
        assert handshakes.half_open == 0, "an open session takes no place"
        await session.close()


def test_handshakes_are_bounded_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("confide_daemon.server.limits.time.monotonic", lambda: now)
    handshakes = Handshakes(per_second=10, burst=5)

    def attempts() -> int:
        passed = 0
        for _ in range(50):
            try:
                with handshakes.slot():
                    passed += 1
            except BusyError:
                break
        return passed

    assert attempts() == 5
    assert attempts() == 0
    now += 0.35
    assert attempts() == 3
    now += 1000
    assert attempts() == 5
    assert handshakes.half_open == 0


async def test_a_flood_of_replayed_first_messages_leaves_nothing_behind() -> None:
    """Message 1 recorded once and sent 300 times: each costs one half handshake and ends with its socket."""
    message = ClientHandshake(LAPTOP, HOST.static_key).write_message1()
    handshakes = Handshakes(per_second=10_000, burst=10_000)
    async with hosting(Door(LAPTOP.public_key), echo, slot=handshakes.slot) as host:
        for _ in range(300):
            async with dial_websocket(host.url, **websocket_options()) as ws:
                await ws.send(message)
                assert len(await ws.recv()) == 1136
        for _ in range(300):
            assert isinstance(await host.refused.get(), HandshakeError)
        assert handshakes.half_open == 0
        await (await dial(host.url)).close()
