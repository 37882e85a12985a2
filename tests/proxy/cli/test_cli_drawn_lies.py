"""Every command against a daemon whose answers are drawn from a grammar of lies for each table of PROTOCOL.md 9 and 10: a right answer or
a known error, in time; nothing is written outside of memory, nothing sealed goes up in clear, nothing steers the terminal."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from tests.proxy.cli.test_console_hostile_texts import STEERS
from tests.support.crypto.channels import HOST
from tests.support.daemon.hostile import EVIL, HostileDaemon, files_of, hostile, sendable, wrong
from tests.support.deadline import DEADLINE_S
from tests.support.draws import IS_THOROUGH
from tests.support.programs.command import Ended, confide
from tests.support.programs.commands import every, has_json
from tests.support.programs.forked import Program
from tests.support.programs.processes import CONFIDE, Machine

from confide_crypto.handshake.invite import Invite
from confide_crypto.transport.connection import Connection
from confide_proxy.mcp import client

TOKEN: Final = "ghp_" + "k3Qz7Lw9Xv2Rt5Yb8Nc1Md4Ps6Hf0Jg3Aq2We"[:36]
MOST_WELCOME: Final = 40_000
"""It is one record."""
KNOWN_CODES: Final = frozenset({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 75})


def prepared(tmp_path: Path) -> Machine:
    """With memory that holds a credential, a link out of it, and a store to import."""
    machine = Machine(tmp_path, "victim")
    machine.write("memory/a.md", f"# heron\n\nfishes at dawn; the token is {TOKEN}\n")
    outside = tmp_path / "victim" / "outside"
    outside.mkdir()
    (outside / "keep.md").write_text("theirs\n")
    (machine.project / "memory/link").symlink_to(outside)
    (tmp_path / "victim" / "notes.jsonl").write_text(json.dumps({"content": f"a note, {TOKEN}", "title": "t"}) + "\n")
    return machine


def check(ended: Ended, command: tuple[str, ...]) -> None:
    """A right answer, or one sentence of a known error."""
    for text in (ended.out, ended.err):
        assert STEERS.search(text) is None, (command, text)
        assert "Traceback" not in text, (command, text)
    assert ended.code in KNOWN_CODES, (command, ended)
    if ended.code and not ended.out:
        assert "confide: " in ended.err or "Usage" in ended.err or "note: " in ended.err, (command, ended)


@pytest.mark.addons
@pytest.mark.parametrize("seed", range(200 if IS_THOROUGH else 1))
async def test_no_lie_of_a_daemon_breaks_a_command(tmp_path: Path, seed: int) -> None:
    """In an order that is drawn too: what a command keeps of one lie the next one meets."""
    machine = prepared(tmp_path)
    draw = random.Random(seed)
    commands = every()
    draw.shuffle(commands)
    async with hostile(machine, draw) as daemon:
        own = files_of(machine)
        for command in commands:
            as_json = ["--json"] if draw.random() < 0.3 and has_json(command) else []
            async with asyncio.timeout(DEADLINE_S):
                ended = await asyncio.to_thread(confide, machine, *command, *as_json, stdin="y\n" * 4)
            check(ended, command)
        left = {path: data for path, data in files_of(machine).items() if "exported" not in path.parts}
        assert left == own
        assert not [data for data in daemon.heard if TOKEN.encode() in data]


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for an answer waits for a moment, so that those that never come are many."""

    def hastened(ask: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        return lambda *args, timeout_s=10.0, **named: ask(*args, timeout_s=min(timeout_s, 0.5), **named)

    for name in ("request", "upload"):
        monkeypatch.setattr(Connection, name, hastened(getattr(Connection, name)))
    for name in ("CALL_DEADLINE_S", "LONG_JOB_DEADLINE_S"):
        monkeypatch.setattr(client, name, 0.5)


@pytest.mark.addons
@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("seed", range(40 if IS_THOROUGH else 1))
async def test_answers_twice_unasked_and_never_break_no_command(tmp_path: Path, seed: int) -> None:
    """An answer to what was not asked ends the connection; one that never comes is not waited for without end."""
    machine = prepared(tmp_path)
    draw = random.Random(seed)
    async with hostile(machine, draw, is_rude=True) as daemon:
        own = files_of(machine)
        for command in every() if IS_THOROUGH else draw.sample(every(), 12):
            async with asyncio.timeout(DEADLINE_S):
                ended = await asyncio.to_thread(confide, machine, *command, stdin="y\n" * 4)
            check(ended, command)
        left = {path: data for path, data in files_of(machine).items() if "exported" not in path.parts}
        assert left == own
        assert not [data for data in daemon.heard if TOKEN.encode() in data]


def invited(daemon: HostileDaemon, draw: random.Random) -> str:
    """An invite of the daemon's, or what is none; and a welcome."""
    welcome = sendable({"caller": wrong(draw), "space": wrong(draw), EVIL: wrong(draw)})
    daemon.door.welcome = welcome if len(json.dumps(welcome)) < MOST_WELCOME else {"caller": EVIL.replace("\ud800", "")}
    invite = Invite.new(HOST.static_key, daemon.url)
    daemon.door.offer(invite)
    text = invite.to_string()
    match draw.randrange(6):
        case 0:
            return text[: draw.randrange(len(text))] + EVIL.replace("\ud800", "")
        case 1:
            return text.replace("#", "/\x1b[2J#")
    return text


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("seed", range(40 if IS_THOROUGH else 1))
async def test_no_lie_of_a_daemon_breaks_a_join(tmp_path: Path, seed: int) -> None:
    """Into it, again and again, from whatever it left; what is not an invite is refused in words."""
    machine = prepared(tmp_path)
    draw = random.Random(seed)
    async with hostile(machine, draw, is_rude=True) as daemon:
        own = files_of(machine)
        for _ in range(5):
            as_json = ["--json"] if draw.random() < 0.3 else []
            async with asyncio.timeout(DEADLINE_S):
                ended = await asyncio.to_thread(confide, machine, "join", *as_json, stdin=invited(daemon, draw) + "\n")
            check(ended, ("join",))
        assert daemon.asked
        assert files_of(machine) == own
        assert not [data for data in daemon.heard if TOKEN.encode() in data]


@pytest.mark.parametrize("seed", range(20 if IS_THOROUGH else 2))
async def test_no_lie_of_a_daemon_breaks_a_watch(tmp_path: Path, seed: int) -> None:
    """It goes on until it is stopped, or says why it cannot; as text in one half of the draws, as JSON in the other."""
    machine = prepared(tmp_path)
    draw = random.Random(seed)
    as_json = ["--json"] if seed % 2 else []
    async with hostile(machine, draw) as daemon:
        own = files_of(machine)
        watch = await asyncio.to_thread(
            Program,
            [CONFIDE, "sync", "--watch", *as_json],
            cwd=machine.project,
            env=machine.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            telling = asyncio.create_task(asyncio.to_thread(watch.communicate))
            async with asyncio.timeout(DEADLINE_S):
                for number in range(3):
                    machine.write(f"memory/new{number}.md", f"a file more, {TOKEN}\n")
                    seen = len(daemon.asked)
                    while len(daemon.asked) < seen + 4 and watch.poll() is None:  # noqa: ASYNC110 - another program
                        await asyncio.sleep(0.05)
                    for connection in daemon.connections:
                        connection.abort()
                if watch.poll() is None:
                    watch.send_signal(signal.SIGTERM)
                out, err = await telling
        finally:
            watch.kill()
            await asyncio.to_thread(watch.wait, DEADLINE_S)
        check(Ended(watch.returncode, out.decode(), err.decode()), ("sync", "--watch", *as_json))
        if as_json:
            assert all("event" in json.loads(line) for line in out.decode().splitlines())
        left = files_of(machine)
        assert left == own
        assert not [data for data in daemon.heard if TOKEN.encode() in data]
