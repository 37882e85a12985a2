"""Bounds on those who are let in: how fast, how many, how long in silence; and what the log says of those who are not."""

from __future__ import annotations

import asyncio
import logging
import statistics
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest
from tests.support.clock import Clock
from tests.support.daemon.loopback import Machine as Connected
from tests.support.daemon.loopback import machine, serving
from tests.support.deadline import DEADLINE_S
from tests.support.programs.processes import CONFIDED, Daemon, Machine, wait_until

from confide_crypto.errors import BusyError, ConnectionLost, DeniedError, HandshakeError, RequestError
from confide_crypto.limits import Timers
from confide_crypto.transport.open_channel import connect
from confide_daemon.config import DaemonConfig, ServerConfig
from confide_daemon.errors import StorageError
from confide_daemon.server import daemon_process
from confide_daemon.server.listening.refused_connections import Refusals
from confide_daemon.server.listening.strangers import MAX_STRANGERS
from confide_daemon.server.rates import REQUESTS_PER_S, Rates
from confide_daemon.spaces.open_limit import SPARE

AT_ONCE = partial(asyncio.timeout, 0)
"""Around what does not wait at all; a pause that the limits put in would meet this."""


# How fast


async def test_a_greedy_caller_slows_down_itself_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two connections of one key ask as fast as they can: all is answered, at the rate, and others are answered at once."""
    async with serving(tmp_path / "data") as daemon, machine(daemon, "modest") as modest:
        burst = 200
        monkeypatch.setattr(daemon.daemon._admission.rates, "_burst", burst)
        await modest.attach()
        key = daemon.enroll("greedy")
        async with Connected(await daemon.connect(key)) as first, Connected(await daemon.connect(key)) as second:
            count, extra = 0, 300
            started = time.monotonic()

            async def ask(greedy: Connected) -> None:
                nonlocal count
                while count < burst + extra:
                    count += 1
                    await greedy.attach()

            async with asyncio.TaskGroup() as group:
                askers = [group.create_task(ask(greedy)) for greedy in (first, second) for _ in range(8)]
                waits = []
                while not all(asker.done() for asker in askers):
                    asked = time.monotonic()
                    await modest.put("MEMORY.md", f"line {len(waits)}\n", base=len(waits))
                    waits.append(time.monotonic() - asked)
                    await asyncio.sleep(0.05)
            took = time.monotonic() - started
        assert took >= extra / REQUESTS_PER_S * 0.9
        assert len(waits) >= 10
        # Whoever had to wait for the greedy one would wait for most of that time, each time; a busy machine makes one of them long.
        assert statistics.median(waits) < took / 10


async def test_what_would_wait_too_long_is_refused_as_busy() -> None:
    clock = Clock(1000.0)
    rates = Rates(per_second=0.5, burst=2, clock=clock)
    with rates.of(b"greedy") as rate, rates.of(b"modest") as other:
        await rate.request(b"{}")
        await rate.request(b"{}")
        waiting = [asyncio.create_task(rate.request(b"{}")) for _ in range(2)]  # 2 s and 4 s from now
        await asyncio.sleep(0)
        with pytest.raises(RequestError) as refused:
            await rate.request(b"{}")
        assert refused.value.code == "busy"
        assert refused.value.hint
        async with AT_ONCE():
            await other.request(b"{}")  # another caller has a rate of its own
        clock.now += 8
        async with AT_ONCE():
            await rate.request(b"{}")
        for task in waiting:
            task.cancel()


async def test_connecting_again_does_not_fill_a_rate() -> None:
    clock = Clock(1000.0)
    rates = Rates(per_second=1, burst=3, clock=clock)
    with rates.of(b"greedy") as rate:
        for _ in range(3):
            await rate.request(b"{}")
    for number in range(500):  # many others come and go meanwhile
        with rates.of(b"other %d" % number):
            pass
    with rates.of(b"greedy") as again, pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await again.pass_message(b"{}")
    assert len(rates) < 200
    clock.now += 60
    with rates.of(b"greedy") as rested:
        async with AT_ONCE():
            await rested.pass_message(b"{}")


async def test_a_first_sync_of_more_files_than_the_burst_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon makes the proxy wait, and the proxy need not know."""
    count, burst, per_second = 160, 24, 100.0
    async with serving(tmp_path / "data") as daemon:
        monkeypatch.setattr(daemon.daemon._admission.rates, "_burst", burst)
        monkeypatch.setattr(daemon.daemon._admission.rates, "_per_second", per_second)
        laptop = Machine(tmp_path, "laptop")
        await asyncio.to_thread(laptop.run, "join", daemon.invite("laptop").to_string())
        for number in range(count):
            laptop.write(f"memory/notes/{number}.md", f"# Note {number}\n\nThe word is w{number}.\n")
        started = time.monotonic()
        told = await asyncio.to_thread(laptop.json, "sync")
        assert time.monotonic() - started >= (count - burst) / per_second * 0.9
        assert (told["filesScanned"], told["filesSent"], told["skipped"]) == (count, count, [])
        found = await asyncio.to_thread(laptop.run, "search", f"w{count - 1}")
        assert f"w{count - 1}." in found


# How many


async def test_a_full_daemon_says_so_and_spends_no_invite(tmp_path: Path) -> None:
    config = DaemonConfig(server=ServerConfig(max_sessions=2))
    async with serving(tmp_path / "data", config=config) as daemon:
        invite = daemon.invite("late")
        key = daemon.enroll("third")
        async with machine(daemon, "first") as first:
            await first.attach()
            async with machine(daemon, "second") as second:
                with pytest.raises(DeniedError, match="lets no connection of this device in") as refused:
                    await daemon.connect(key)
                assert (refused.value.reason, refused.value.exit_code) == ("busy", 6)
                assert "as many devices are connected as it serves" in (refused.value.hint or "")
                with pytest.raises(DeniedError):
                    await daemon.connect(key, invite=invite)
                await second.attach()
            async with asyncio.timeout(10):
                while True:
                    try:
                        joined = await daemon.connect(key, invite=invite)
                    except DeniedError:
                        await asyncio.sleep(0.05)  # the second one's goodbye is under way
                    else:
                        break
            await joined.close()
            await first.put("MEMORY.md", "still here\n")


async def test_a_peer_that_falls_silent_is_dropped(tmp_path: Path) -> None:
    """Its keepalives are inside the channel; without them it is gone after the idle limit (here 2 s in place of 90)."""
    quick, mute = Timers(keepalive_s=0.5, idle_s=2.0), Timers(keepalive_s=600, idle_s=600)
    async with serving(tmp_path / "data", timers=quick) as daemon:
        static = daemon.state.identity.static_key
        silent = Connected(await connect(daemon.url, daemon.enroll("silent"), static, timers=mute))
        alive = Connected(await connect(daemon.url, daemon.enroll("alive"), static, timers=quick))
        await silent.attach()
        await alive.attach()
        assert isinstance(await silent.ended_within(10), ConnectionLost)
        await asyncio.sleep(quick.idle_s + 0.5)
        await alive.put("MEMORY.md", "still here\n")
        await alive.connection.close()
        assert await alive.ended_within(10) is None
        for each in (silent, alive):
            each._received.close()


# File descriptors


def test_the_daemon_serves_fewer_where_it_may_open_fewer_files_and_says_so(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    told = serve_with_limit(daemon, 700)
    assert "sessions and " in told
    assert "open spaces at once, not 4096 and 256: this process may open 700 files" in told


def test_the_daemon_refuses_to_start_where_it_could_serve_hardly_anybody(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    told = serve_with_limit(daemon, 300, code=3)
    assert "this process may open 300 files" in told
    assert "hint: raise the hard limit to 8192 or more" in told


def serve_with_limit(daemon: Daemon, files: int, *, code: int = 0) -> str:
    """Serve under a hard limit of open files until it listens or ends; all that it said."""
    command = f"ulimit -n {files}; exec '{CONFIDED}' serve --listen 127.0.0.1:0 --data '{daemon.data}'"
    process = subprocess.Popen(
        ["bash", "-c", command], env=daemon.env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until(
            "it to serve or end", lambda: process.poll() is not None or (daemon.data / "daemon.address").exists()
        )
        process.terminate()
        _, told = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    assert process.returncode == code, told
    return told


# What the log says


def test_files_are_left_for_those_who_come_to_a_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a flood of connections there would keep spaces from being opened, and machines from coming in."""
    allowed = 1700
    monkeypatch.setattr(daemon_process, "_raise_to", lambda _wanted: allowed)
    for beside in (0, 640):
        sessions, open_spaces = daemon_process.make_room(4096, 256, beside=beside)
        taken = sessions + open_spaces * daemon_process.PER_SPACE + MAX_STRANGERS + daemon_process.RESERVE + beside
        assert allowed - 2 * daemon_process.PER_SPACE * SPARE < taken <= allowed


def test_refusals_are_told_once_a_minute_however_many_there_are(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock(1000.0)
    refusals = Refusals(clock=clock)
    for number in range(10_000):
        refusals.note((BusyError(), HandshakeError("x"), DeniedError("unknown", f"words-{number}"))[number % 3])
        refusals.count("cut at once")
        refusals.report()
    assert (
        len(caplog.records) <= 20
    )  # a few proven keys by their words: the operator looks for them when a machine joins
    clock.now += 61
    refusals.report()
    assert caplog.messages[-1].startswith("refused 19,990 handshakes in 61 s: ")
    assert "10,000 cut at once" in caplog.messages[-1]
    lines = len(caplog.records)
    clock.now += 61
    refusals.report()
    refusals.report(is_last=True)
    assert len(caplog.records) == lines  # nothing to tell
    refusals.note(TimeoutError())
    refusals.report(is_last=True)
    assert "1 failed" in caplog.messages[-1]


def test_failures_of_the_daemons_own_cannot_fill_the_log_either(caplog: pytest.LogCaptureFixture) -> None:
    """A stranger can make it look into a registry that is broken, 50 times a second."""
    refusals = Refusals(clock=Clock(1000.0))
    for _ in range(1000):
        refusals.note(StorageError("cannot read the registry: disk I/O error"))
    assert 1 <= len(caplog.records) <= 20
    assert "disk I/O error" in caplog.messages[0]
    refusals.report(is_last=True)
    assert "990 by a failure here" in caplog.messages[-1]
