"""A machine that slept: noticed by a clock that goes on meanwhile, and by nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.support.crypto.channels import HOST, LAPTOP, Door, hosting, no_message, no_request

from confide_crypto.errors import ConnectionLost
from confide_crypto.transport import connection as session
from confide_crypto.transport.connection import SLEPT_S, boot_clock, wait_awake
from confide_crypto.transport.open_channel import Timers, connect


class Jumping:
    """A clock that reads what it is told, one reading after the other, and then stands still."""

    def __init__(self, *readings: float) -> None:
        self._readings: Iterator[float] = iter(readings)
        self._last = 0.0
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        self._last = next(self._readings, self._last)
        return self._last


async def test_a_sleep_is_noticed_at_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lid was closed for an hour: the wait ends there and then, however long it was meant to be."""
    monkeypatch.setattr(session, "LOOK_S", 0.01)
    clock = Jumping(100.0, 100.01, 100.01, 3700.02)
    async with asyncio.timeout(20):
        assert await wait_awake(60.0, clock=clock) == pytest.approx(3600.0, abs=0.1)
    assert clock.looks == 4


async def test_a_busy_machine_is_not_asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds of delay are none, and the wait goes on to its end; nor is a clock that went backwards."""
    monkeypatch.setattr(session, "LOOK_S", 0.01)
    monkeypatch.setattr(session, "SLEPT_S", SLEPT_S)
    clock = Jumping(0.0, SLEPT_S, 20.0, 10.0)
    assert await wait_awake(0.03, clock=clock) == 0
    assert clock.looks == 6


async def test_the_clock_of_the_machine_goes_on() -> None:
    assert await wait_awake(0.01) == 0
    before = boot_clock()
    await asyncio.sleep(0.01)
    assert boot_clock() > before


async def test_only_who_can_connect_again_gives_the_connection_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """After waking the client does not wait for the idle limit; a daemon that was stopped keeps its sessions."""
    monkeypatch.setattr(session, "wait_awake", lambda _seconds: wait_awake(0.01, clock=Jumping(0.0, 3600.0)))
    patient = Timers(keepalive_s=0.02, idle_s=600)

    async def handle(connection: session.Connection) -> None:
        await connection.serve(on_message=no_message, on_request=no_request)

    async with hosting(Door(LAPTOP.public_key), handle, timers=patient) as host, asyncio.timeout(20):
        connection = await connect(host.url, LAPTOP, HOST.static_key, timers=patient)
        with pytest.raises(ConnectionLost, match="this machine slept for 3600 s") as caught:
            await connection.serve(on_message=no_message, on_request=no_request)
        assert caught.value.truncated
        ended = await host.ended.get()
        assert isinstance(ended, ConnectionLost)
        assert "slept" not in str(ended), "it only saw its client leave"


async def test_who_waits_for_an_answer_is_told_why_it_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "wait_awake", lambda _seconds: wait_awake(0.01, clock=Jumping(0.0, 3600.0)))

    async def never(_op: str, _body: dict[str, object]) -> dict[str, object]:
        await asyncio.Event().wait()
        raise AssertionError

    async def handle(connection: session.Connection) -> None:
        await connection.serve(on_message=no_message, on_request=never)

    async with hosting(Door(LAPTOP.public_key), handle) as host, asyncio.timeout(20):
        connection = await connect(host.url, LAPTOP, HOST.static_key)
        asking = asyncio.create_task(connection.request("status", {}))
        await asyncio.sleep(0)  # it takes its first step
        with pytest.raises(ConnectionLost):
            await connection.serve(on_message=no_message, on_request=no_request)
        with pytest.raises(ConnectionLost, match="this machine slept for 3600 s"):
            await asking
        with pytest.raises(ConnectionLost, match="this machine slept for 3600 s"):
            await connection.request("status", {})
