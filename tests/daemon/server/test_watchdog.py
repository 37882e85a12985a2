"""What systemd is told: that the daemon listens, how it is, that it ends, and that it lives, only while that is so."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.support.daemon.loopback import Serving, machine, serving
from tests.support.deadline import DEADLINE_S
from tests.support.programs.confided import Confided

from confide_crypto.errors import RequestError
from confide_daemon.datadir.control_client import address
from confide_daemon.server.operator.watchdog import WatchdogService

WATCHDOG_S = 0.8
"""In place of a minute: a pulse every 0.2 s, and 0.4 s for a writer."""


class Listener:
    """The end of systemd: what it was told, in order."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(DEADLINE_S)
        with address(path) as where:
            self._socket.bind(where)

    def next(self, start: str = "") -> str:
        """The next datagram that begins so."""
        while not (told := self._socket.recv(4096).decode()).startswith(start):
            pass
        return told

    def is_silent_for(self, seconds: float) -> bool:
        """Whether no sign of life comes for so long."""
        until = time.monotonic() + seconds
        self._socket.settimeout(0.05)
        try:
            while time.monotonic() < until:
                try:
                    if self._socket.recv(4096) == b"WATCHDOG=1":
                        return False
                except TimeoutError:
                    continue
            return True
        finally:
            self._socket.settimeout(DEADLINE_S)

    def drain(self) -> None:
        """Forget what has come."""
        self._socket.setblocking(False)
        try:
            while True:
                self._socket.recv(4096)
        except BlockingIOError:
            self._socket.settimeout(DEADLINE_S)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Listener]:
    with closing(Listener(tmp_path / "notify")) as listener:
        yield listener


@pytest.fixture
async def daemon(systemd: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serving]:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", str(int(WATCHDOG_S * 1e6)))
    async with serving(tmp_path / "data") as running:
        yield running


def test_a_service_is_ready_once_it_listens_and_says_when_it_ends(
    ready: Confided, systemd: Listener, tmp_path: Path
) -> None:
    """With a line on how it is between the two; what the daemon starts is not handed the socket."""
    ready.env |= {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "400000"}
    process = ready.serve()
    assert systemd.next() == "READY=1"
    assert ready.address is not None
    assert systemd.next("STATUS") == "STATUS=0 sessions, 0 spaces open"
    assert systemd.next("WATCHDOG") == "WATCHDOG=1"
    process.terminate()
    assert systemd.next("STOPPING") == "STOPPING=1"
    assert process.wait(DEADLINE_S) == 0


async def test_a_writer_that_hangs_stops_the_signs_of_life_until_it_goes_on(daemon: Serving, systemd: Listener) -> None:
    """The loop turns meanwhile, other spaces write, and machines are answered: only systemd is told nothing."""
    hold, held = threading.Event(), threading.Event()

    def hang() -> None:
        held.set()
        hold.wait(DEADLINE_S)

    async with machine(daemon, "stuck") as stuck, machine(daemon, "other") as other:
        await stuck.attach()
        await other.attach()
        await asyncio.to_thread(systemd.next, "WATCHDOG")
        space = await daemon.daemon.spaces.get(daemon.state.registry.spaces()["stuck"])
        hanging = asyncio.create_task(space.threads.maintain(lambda _store: hang()))
        await asyncio.to_thread(held.wait, DEADLINE_S)
        try:
            systemd.drain()
            # One pulse may have asked before it hung.
            await asyncio.to_thread(systemd.is_silent_for, WATCHDOG_S / 2)
            assert await asyncio.to_thread(systemd.is_silent_for, 2 * WATCHDOG_S)
            await other.put("memory/a.md", "goes on\n")
        finally:
            hold.set()
        await hanging
        assert await asyncio.to_thread(systemd.next, "WATCHDOG") == "WATCHDOG=1"


async def test_a_loop_that_hangs_gives_no_sign_of_life(daemon: Serving, systemd: Listener) -> None:
    await asyncio.to_thread(systemd.next, "WATCHDOG")
    systemd.drain()
    silent: list[bool] = []
    watching = threading.Thread(target=lambda: silent.append(systemd.is_silent_for(1.5 * WATCHDOG_S)))
    watching.start()
    watching.join()  # here, on the loop
    assert silent == [True]
    assert await asyncio.to_thread(systemd.next, "WATCHDOG") == "WATCHDOG=1"


async def test_on_a_full_disk_it_is_alive(small_disk: Path, systemd: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores are refused and `/health` says why; reads go on, and so do the signs of life. Room alone brings the stores back."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(small_disk.parent / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", str(int(WATCHDOG_S * 1e6)))
    ballast = small_disk / "ballast"
    async with serving(small_disk / "data") as daemon, machine(daemon) as laptop:
        await laptop.attach()
        await laptop.put("memory/a.md", "herons\n")
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
        with pytest.raises(RequestError) as refused:  # noqa: PT012 - which of them fails is not known before
            for number in range(1000):
                await laptop.put(f"memory/{number}.md", f"herons {number}\n" * 1000)
        assert refused.value.code == "storage_full"
        systemd.drain()
        for _ in range(3):
            assert await asyncio.to_thread(systemd.next, "WATCHDOG") == "WATCHDOG=1"
        assert (await laptop.request("pull", {"project": "proj", "path": "memory/a.md"}))["text"] == "herons\n"
        assert "disk" in daemon.daemon.health_problems()
        ballast.unlink()
        assert (await laptop.put("memory/b.md", "herons\n"))["revision"] == 1


async def test_a_writer_that_fails_lives(systemd: Listener, tmp_path: Path) -> None:
    """As on a full disk: it answers, though with an error; and its questions do not pile up on one that hangs."""
    asked = 0

    async def fails() -> None:
        raise OSError(28, "no space left on device")

    async def hangs() -> None:
        nonlocal asked
        asked += 1
        await asyncio.sleep(DEADLINE_S)

    service = WatchdogService(str(tmp_path / "notify"), 0.2)
    running = asyncio.create_task(service.run(lambda: "one line", lambda: {"full": fails}))
    assert await asyncio.to_thread(systemd.next, "WATCHDOG") == "WATCHDOG=1"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    running = asyncio.create_task(service.run(lambda: "one line", lambda: {"stuck": hangs}))
    systemd.drain()
    assert await asyncio.to_thread(systemd.is_silent_for, 0.8)
    assert asked == 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_what_the_environment_says_is_of_this_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is taken out of it; what is no address is none, and nobody told costs nothing."""
    monkeypatch.setenv("NOTIFY_SOCKET", "@abstract")
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid() + 1))
    service = WatchdogService.of_environment()
    assert (service._address, service._watchdog_s) == ("\0abstract", 0.0)
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} & os.environ.keys()
    monkeypatch.setenv("NOTIFY_SOCKET", "vsock:2:3")
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    service = WatchdogService.of_environment()
    assert (service._address, service._watchdog_s) == ("", 60.0)
    service.ready()
    service.stopping()
