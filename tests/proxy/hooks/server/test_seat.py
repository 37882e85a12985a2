"""Who answers hooks: one process, another when it ends or is frozen, and never two for long."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from confide_proxy import locks
from confide_proxy.hooks import hook_paths
from confide_proxy.hooks.server import prompt_listener, seat
from confide_proxy.hooks.server.prompt_listener import PromptListener
from confide_proxy.locks import Seat
from confide_proxy.paths import ProxyPaths


class Link:
    """One that is down, for no reason that a person could mend."""

    is_up = False
    reason = None


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProxyPaths:
    state = tmp_path / "s"
    state.mkdir(mode=0o700)
    if len(os.fsencode(state)) > hook_paths.MOST_ADDRESS - 12:
        pytest.skip("this folder's path is too long for a socket")
    for name in ("AGAIN_S", "PULSE_S"):
        monkeypatch.setattr(seat, name, 0.01)
    monkeypatch.setattr(seat, "SILENT_S", 0.1)
    return ProxyPaths(tmp_path / "proxy.toml", state, tmp_path / "global", tmp_path / "daemon")


def holding(here: ProxyPaths) -> asyncio.Task[None]:
    link: Any = Link()
    return asyncio.create_task(seat.Hooks(here, link, link, []).run())


async def asked(here: ProxyPaths, line: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(here.state / "hooks.sock")
    writer.write(line)
    if not line.endswith(b"\n"):
        writer.write_eof()
    answer = b""
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):  # it has ended with some of the line unread
        answer = await reader.readline()
    writer.close()
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        await writer.wait_closed()
    return answer


async def until_listening(here: ProxyPaths, *, besides: int = -1) -> int:
    """The inode of the socket that hooks find, another one than `besides`."""
    async with asyncio.timeout(10):
        while True:
            found = (here.state / "hooks.sock").stat().st_ino if (here.state / "hooks.sock").exists() else -1
            if found not in (-1, besides):
                return found
            await asyncio.sleep(0.01)


async def test_one_listens_and_the_next_follows(here: ProxyPaths) -> None:
    first, second = holding(here), holding(here)
    inode = await until_listening(here)
    assert stat.S_IMODE((here.state / "hooks.sock").stat().st_mode) == 0o600
    assert json.loads(await asked(here, b'{"kind": "turn", "cwd": "/x"}\n')) == {}
    await asyncio.sleep(0.1)
    assert await until_listening(here) == inode
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    second_inode = await until_listening(here)
    assert await asked(here, b"{}\n") == b"{}\n", second_inode
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert not (here.state / "hooks.sock").exists()


async def test_a_frozen_holder_is_replaced_and_lets_go_when_it_goes_on(here: ProxyPaths) -> None:
    """It has the lock and shows no life; who listens in its place keeps doing so, and the frozen one finds that it is not in place."""
    frozen = Seat(here.seats, seat.NAME)
    assert frozen.try_take()

    async def nothing(_asked: Any) -> dict[str, Any]:
        return {}

    stale = PromptListener(str(here.state), nothing)
    await stale.open()
    before = await until_listening(here)
    os.utime(next(here.seats.iterdir()), (1.0, 1.0))
    other = holding(here)
    await until_listening(here, besides=before)
    assert not stale.is_in_place()
    stale.close()
    frozen.leave()
    assert await asked(here, b"{}\n") == b"{}\n"
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)


async def test_what_is_no_question_gets_no_answer(here: ProxyPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken lines, long ones, silence, other users, too many: the connection ends, and the next one is answered."""
    monkeypatch.setattr(prompt_listener, "READ_S", 0.1)
    holder = holding(here)
    await until_listening(here)
    for line in (b"no json\n", b"[]\n", b"7\n", b"", b"half", b"{" * 100_000 + b"\n"):
        assert await asked(here, line) == b""
    monkeypatch.setattr(prompt_listener, "is_same_user", lambda _peer: False)
    assert await asked(here, b"{}\n") == b""
    monkeypatch.undo()
    assert await asked(here, b"{}\n") == b"{}\n"
    for told in (
        {"kind": "start"},
        {"kind": "start", "cwd": "relative"},
        {"kind": 7, "cwd": []},
        {"kind": "prompt", "cwd": "/x"},
    ):
        assert await asked(here, json.dumps(told).encode() + b"\n") == b"{}\n"
    holder.cancel()
    await asyncio.gather(holder, return_exceptions=True)


@pytest.mark.parametrize("set_by_s", [3600.0, -3600.0])
def test_a_clock_that_is_set_says_nothing_about_the_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_by_s: float
) -> None:
    """Nor does a laptop that wakes up. Its signs count by the clock of who looks, which nobody sets."""
    ticks = [100.0]
    monkeypatch.setattr(locks, "time", SimpleNamespace(monotonic=lambda: ticks[0], sleep=None))
    holder, other = Seat(tmp_path, "role"), Seat(tmp_path, "role")
    assert holder.try_take()
    assert not other.try_take()
    (file,) = tmp_path.iterdir()

    def show(at: float) -> None:
        os.utime(file, (at, at))

    now = file.stat().st_mtime
    assert other.silent_s() == 0
    for beat in range(3):
        ticks[0] += 1
        show(now + set_by_s + beat)
        assert other.silent_s() == 0
    ticks[0] += 7
    assert other.silent_s() == 7
    holder.leave()
