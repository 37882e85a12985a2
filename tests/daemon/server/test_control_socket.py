"""The control socket: what commands ask the daemon of their folder, and what keeps others, and greedy ones, from it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import serving
from tests.support.deadline import DEADLINE_S
from tests.support.programs.confided import Confided

from confide_crypto.errors import RequestError
from confide_daemon.datadir import control_client as commands
from confide_daemon.errors import LockedError, NotServedError
from confide_daemon.server.operator.control_socket import MOST_AT_ONCE, Control


async def connected(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    with commands.address(path) as where:
        return await asyncio.open_unix_connection(where, limit=commands.MOST_ANSWERED)


async def asked(path: Path, line: bytes) -> dict[str, Any]:
    """What is answered to these bytes."""
    reader, writer = await connected(path)
    with closing(writer):
        writer.write(line)
        writer.write_eof()
        async with asyncio.timeout(DEADLINE_S):
            answer: dict[str, Any] = json.loads(await reader.readline())
    return answer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "daemon.sock"


@pytest.mark.parametrize("options", [(), ("--on-demand", "--idle-exit", "60")], ids=["serve", "on demand"])
def test_a_daemon_is_asked_by_its_owner_alone_while_it_serves(ready: Confided, options: tuple[str, ...]) -> None:
    """The socket lies in its folder, open to nobody else, and goes with the daemon."""
    path = ready.data / "daemon.sock"
    with pytest.raises(NotServedError, match="it is not running"):
        commands.ask(path, "nothing")
    ready.serve(*options)
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600
    with pytest.raises(RequestError, match="does not know what it was asked") as refused:
        commands.ask(path, "nothing")
    assert (refused.value.code, bool(refused.value.hint)) == ("invalid", True)
    ready.run("stop")
    assert not path.exists()


def test_the_socket_of_a_killed_daemon_is_replaced_and_one_that_is_answered_is_not(ready: Confided) -> None:
    """Nor anything else in its place. The daemon serves all the same, and its log says why nobody can ask it."""
    path = ready.data / "daemon.sock"
    process = ready.serve()
    process.kill()
    process.wait()
    assert path.is_socket()
    process = ready.serve()
    with pytest.raises(RequestError):
        commands.ask(path, "nothing")
    process.kill()
    process.wait()

    path.unlink()
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as other:
        with commands.address(path) as where:
            other.bind(where)
        other.listen()
        ready.serve()
        assert "another process listens there" in ready.log
        ready.run("stop")
        assert path.is_socket()
    path.unlink()
    path.write_text("mine")
    ready.serve()
    assert "something else is in the socket's place" in ready.log
    ready.run("stop")
    assert path.read_text() == "mine"


async def test_a_folder_whose_path_is_too_long_for_a_socket_has_one_too(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 40)
    folder.mkdir(mode=0o700)
    async with serving(folder):
        path = folder / "daemon.sock"
        assert len(os.fsencode(path)) > 108
        assert path.is_socket()
        answer = await asked(path, b'{"do": "nothing"}\n')
        assert answer["error"]["code"] == "invalid"
        assert await asyncio.to_thread(commands.is_answered, path)


async def test_what_is_no_question_is_refused_with_a_sentence(path: Path) -> None:
    """Of no JSON, no object, no end, or without bounds."""
    control = Control(path)
    await control.open()
    for line in (b"\n", b"[]\n", b'"do"\n', b'{"do": "x"', b"\xff\n", b"[" * 50_000 + b"\n", b"x" * 200_000 + b"\n"):
        answer = await asked(path, line)
        assert answer["error"]["code"] == "invalid", line[:20]
    for line in (b"{}\n", b'{"do": []}\n', b'{"do": "Nothing"}\n'):
        assert "does not know" in (await asked(path, line))["error"]["message"]
    await control.close()
    assert not path.exists()


async def test_a_verb_answers_fails_or_takes_too_long_each_in_its_form(path: Path) -> None:
    """A fault of ours is told by its class alone, and nothing that was asked is quoted."""
    cancelled = asyncio.Event()

    async def echo(said: Mapping[str, Any]) -> dict[str, Any]:
        return {"said": said["word"]}

    async def locked(_said: Mapping[str, Any]) -> dict[str, Any]:
        raise LockedError

    async def hang(_said: Mapping[str, Any]) -> dict[str, Any]:
        try:
            await asyncio.sleep(DEADLINE_S)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return {}

    async def flood(_said: Mapping[str, Any]) -> dict[str, Any]:
        return {"flood": "x" * commands.MOST_ANSWERED}

    control = Control(path)
    control.add("echo", echo)
    control.add("locked", locked)
    control.add("hang", hang, deadline_s=0.05)
    control.add("flood", flood)
    await control.open()
    try:
        ask = asyncio.to_thread
        assert await ask(commands.ask, path, "echo", word="ü") == {"said": "ü"}
        for verb, code in (("locked", "locked"), ("hang", "unavailable"), ("flood", "too_large"), ("echo", "internal")):
            with pytest.raises(RequestError) as refused:
                await ask(commands.ask, path, verb)
            assert refused.value.code == code
            assert "word" not in str(refused.value)
        assert cancelled.is_set()
    finally:
        await control.close()


async def test_silent_ones_keep_nobody_out_for_long(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as may ask at once say nothing: whoever comes next hears that it is busy, until their time is over."""
    monkeypatch.setattr("confide_daemon.server.operator.control_socket.READ_S", 1.0)
    control = Control(path)
    await control.open()
    silent = [await connected(path) for _ in range(MOST_AT_ONCE)]
    assert (await asked(path, b'{"do": "x"}\n'))["error"]["code"] == "busy"
    for reader, _ in silent:
        async with asyncio.timeout(DEADLINE_S):
            assert b"one line of JSON" in await reader.read()
    assert (await asked(path, b'{"do": "x"}\n'))["error"]["code"] == "invalid"
    for _, writer in silent:
        writer.close()
    await control.close()


async def test_what_is_under_way_ends_with_the_daemon(path: Path) -> None:
    begun = asyncio.Event()

    async def hang(_said: Mapping[str, Any]) -> dict[str, Any]:
        begun.set()
        await asyncio.sleep(DEADLINE_S)
        return {}

    control = Control(path)
    control.add("hang", hang, deadline_s=DEADLINE_S)
    await control.open()
    reader, writer = await connected(path)
    writer.write(b'{"do": "hang"}\n')
    async with asyncio.timeout(DEADLINE_S):
        await begun.wait()
        await control.close()
        assert await reader.read() == b""
    writer.close()


def test_one_that_listens_and_does_not_answer_costs_a_command_its_time_and_no_more(path: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as silent:
        with commands.address(path) as where:
            silent.bind(where)
        silent.listen()
        began = time.monotonic()
        with pytest.raises(NotServedError, match="does not answer in time"):
            commands.ask(path, "top", timeout_s=0.2)
        assert time.monotonic() - began < DEADLINE_S
