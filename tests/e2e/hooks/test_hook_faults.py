"""Whatever happens to a hook, its client sees an exit code of 0 and nothing else; and what it may cost has an end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.e2e.hooks.test_hook import QUESTION, context, fired, listening, outcomes, said
from tests.support.deadline import DEADLINE_S
from tests.support.patience import IS_PATIENT
from tests.support.programs.forked import Program
from tests.support.programs.processes import CONFIDE, Machine, stands_still, wait_until
from tests.support.programs.wire import Wire

from confide_proxy.hooks import counts, hook_paths, hook_process, session_marks
from confide_proxy.hooks.server import usage
from confide_proxy.mcp import stdio

LATEST_S = 0.45


def test_what_is_no_event_costs_nothing_and_says_nothing(tmp_path: Path) -> None:
    """With nobody listening: broken and huge input, events of no client, events of all clients. What went wrong is counted, in a word."""
    machine = Machine(tmp_path, "ann")
    for raw in (
        b"",
        b"{",
        b"[]",
        b"\xff\xfe\x00",
        b'"' + b"a" * 300_000 + b'"',
        b"{" * 200_000,
        b" " * 20_000_000 + b"{}",
    ):
        assert fired(machine, "", raw=raw) is None
    assert outcomes(machine) == ["- failed"] * 7
    # Of a long one a hook that starts late reads what has come, which is no JSON either.
    assert {each[4] for each in counts.read(str(machine.home / "proxy"))} <= {"no-json", "too-large"}
    for event in ("PreToolUse", "Notification", "", "x" * 5000, "\u202e"):
        assert fired(machine, event) is None
    for event in (
        "SessionStart",
        "UserPromptSubmit",
        "Stop",
        "PreCompact",
        "PostCompact",
        "SubagentStop",
        "SessionEnd",
        "AfterAgent",
    ):
        assert fired(machine, event, prompt=QUESTION, transcript_path="/nowhere", compact_summary="x" * 1000) is None
    assert outcomes(machine)[-8:-6] == ["SessionStart absent", "UserPromptSubmit absent"]
    shutil.rmtree(machine.home / "proxy")
    assert fired(machine, "UserPromptSubmit", prompt=QUESTION) is None
    assert not (machine.home / "proxy").exists()


def test_a_large_answer_of_a_web_page_is_foreign_too(tmp_path: Path) -> None:
    """A page of a megabyte is read; what no hook reads, since it is larger or comes too late, may be a page."""
    machine = Machine(tmp_path, "ann")
    foreign = machine.home / "proxy/hooks/foreign"
    page = {"tool_input": {"url": "https://a.test"}, "tool_response": {"result": "x" * 1_000_000}}
    for tool, is_foreign in (("Write", False), ("WebFetch", True)):
        assert fired(machine, "PostToolUse", tool_name=tool, **page) is None
        assert foreign.exists() is is_foreign
    foreign.unlink()
    assert fired(machine, "", raw=b" " * 20_000_000 + b"{}") is None
    assert foreign.exists()
    foreign.unlink()
    with Program([CONFIDE, "hook"], cwd=machine.project, env=machine.env, stdin=subprocess.PIPE) as slow:
        assert slow.stdin is not None
        slow.stdin.write(b'{"hook_event_name": "PostToolUse", "tool_name": "WebFetch"')
        slow.stdin.flush()
        assert slow.wait(DEADLINE_S) == 0
    assert foreign.exists()


def test_a_hook_whose_client_is_gone_ends_as_well(tmp_path: Path) -> None:
    """Nobody writes to it, nobody reads it, nothing is open: it is gone within its time."""
    machine = Machine(tmp_path, "ann")
    del machine.env[IS_PATIENT]
    began = time.monotonic()
    with Program([CONFIDE, "hook"], cwd=machine.project, env=machine.env, stdin=subprocess.PIPE) as silent:
        assert silent.wait(DEADLINE_S) == 0
        # It knows its own beginning by the system's ticks: one that has begun, and one by which clocks differ.
        assert time.monotonic() - began >= hook_process.DEADLINE_S - 2 / os.sysconf("SC_CLK_TCK")
    asked = json.dumps({"hook_event_name": "PermissionRequest", "tool_name": "mcp__confide__memory_read"})
    for shell in ("{} hook <&-", "echo '{}' | {} hook >&-", "echo '{}' | {} hook | true"):
        line = shell.format(CONFIDE) if shell.count("{}") == 1 else shell.format(asked, CONFIDE)
        done = subprocess.run(
            ["sh", "-c", line], cwd=machine.project, env=machine.env, capture_output=True, timeout=DEADLINE_S
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), line


def test_a_hooks_time_begins_with_its_process() -> None:
    """An interpreter that was slow to start has used some of it, if not all."""
    script = """if True:
        import time
        time.sleep({})
        from confide_proxy.hooks import hook_process
        before = time.monotonic()
        began = hook_process.process_start()
        print(before - began, time.monotonic() - began)
    """
    for slow_s in (0.05, 0.3):
        done = subprocess.run([sys.executable, "-c", script.format(slow_s)], capture_output=True, text=True, check=True)
        at_least, at_most = map(float, done.stdout.split())
        assert at_most >= min(slow_s, hook_process.MOST_START_S) - 0.001
        assert at_least <= hook_process.MOST_START_S + 0.001


def test_a_full_disk_takes_nothing_but_what_would_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer still comes; what cannot be counted is not."""
    state = tmp_path / "proxy"
    state.mkdir()
    monkeypatch.setenv("CONFIDE_HOME", str(tmp_path))
    written: list[bytes] = []

    def full(fd: int, data: bytes) -> int:
        if fd != 1:
            raise OSError(errno.ENOSPC, "no space left on device")
        written.append(data)
        return len(data)

    asked = {"hook_event_name": "PermissionRequest", "tool_name": "mcp__confide__memory_read"}
    monkeypatch.setattr(os, "write", full)
    monkeypatch.setattr(hook_process.Hook, "_stdin", lambda _hook: json.dumps(asked).encode())
    hook_process.Hook(time.monotonic()).run()
    assert b"allow" in b"".join(written)
    assert counts.read(str(state)) == []


def test_an_answer_is_counted_where_its_session_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook counts the notes that this session was shown and that its last answer names; nothing listens any more."""
    state = tmp_path / "proxy"
    state.mkdir()
    monkeypatch.setenv("CONFIDE_HOME", str(tmp_path))
    told = {"hook_event_name": "Stop", "session_id": "s", "cwd": str(tmp_path)}
    told["last_assistant_message"] = "Done, as memory/a.md says."
    monkeypatch.setattr(hook_process.Hook, "_stdin", lambda _hook: json.dumps(told).encode())
    hook_process.Hook(time.monotonic()).run()
    assert not (state / "hooks" / usage.FILE).exists()
    file, by = usage.UsageFile(state), usage.session_of("s")
    shown = [usage.ShownNote("shop", "memory/a.md")]
    file.add(lambda state: state.show(usage.PROMPT, shown, tokens=1, now=time.time(), session=by))
    file.flush()
    hook_process.Hook(time.monotonic()).run()
    assert [note.used for note in file.refresh().notes.values()] == [1]
    assert b"as memory" not in b"".join(each.read_bytes() for each in state.rglob("*") if each.is_file())


def test_a_socket_that_is_not_this_users_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever put it there: one of another user's, one at whose other end somebody else is, a file, a link to another place."""
    state = tmp_path / "p"
    state.mkdir()
    address = state / "hooks.sock"
    if len(os.fsencode(address)) > 100:
        pytest.skip("this folder's path is too long for a socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen()
        found = hook_process.connect(str(state), 1.0)
        assert found is not None
        found.close()
        me = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: me + 1)
        assert hook_process.connect(str(state), 1.0) is None
        monkeypatch.setattr(hook_process, "is_same_user", lambda _connection: True)
        assert hook_process.connect(str(state), 1.0) is None, "whose file it is counts, whoever listens"
        monkeypatch.undo()
        monkeypatch.setattr(hook_process, "is_same_user", lambda _connection: False)
        assert hook_process.connect(str(state), 1.0) is None
        monkeypatch.undo()
        elsewhere = state / "elsewhere.sock"
        address.rename(elsewhere)
        address.symlink_to(elsewhere)
        assert hook_process.connect(str(state), 1.0) is None
    address.unlink()
    address.write_text("no socket")
    assert hook_process.connect(str(state), 1.0) is None


def test_whatever_a_listener_says_is_passed_on_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No JSON, another form, too much, half a line, nothing: silence, and one word in the counts."""
    address = tmp_path / "proxy/hooks.sock"
    address.parent.mkdir()
    if len(os.fsencode(address)) > hook_paths.MOST_ADDRESS:
        pytest.skip("this folder's path is too long for a socket")
    monkeypatch.setenv("CONFIDE_HOME", str(tmp_path))
    asked = {"hook_event_name": "UserPromptSubmit", "prompt": QUESTION, "cwd": str(tmp_path)}
    monkeypatch.setattr(hook_process.Hook, "_stdin", lambda _hook: json.dumps(asked).encode())
    monkeypatch.setattr(hook_process, "DEADLINE_S", 0.1)
    answers = [
        b"\n",
        b"no\n",
        b"[]\n",
        b'{"context": 7, "message": []}\n',
        b"x" * 300_000,
        b'{"context": "half',
        b"",
        b"{}\n",
    ]
    written: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen()

        def lie(answer: bytes) -> None:
            peer, _ = listener.accept()
            with peer, contextlib.suppress(OSError):
                peer.recv(65_536)
                peer.sendall(answer)

        for answer in answers:
            teller = threading.Thread(target=lie, args=(answer,))
            teller.start()
            with monkeypatch.context() as patched:
                patched.setattr(os, "write", lambda fd, data: len(data) if fd != 1 else written.append(data))
                hook_process.Hook(time.monotonic()).run()
            teller.join()
    assert written == []


def test_a_prompt_waits_for_a_session_that_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a client that was started for it alone comes before anybody listens; one that asks nothing waits for nobody."""
    state = tmp_path / "proxy"
    state.mkdir()
    address = state / "hooks.sock"
    if len(os.fsencode(address)) > hook_paths.MOST_ADDRESS:
        pytest.skip("this folder's path is too long for a socket")
    monkeypatch.setenv("CONFIDE_HOME", str(tmp_path))
    monkeypatch.setattr(hook_process, "DEADLINE_S", 2 * hook_process.LEAST_S)  # that of other prompts
    monkeypatch.setattr(hook_process, "FIRST_S", DEADLINE_S)
    monkeypatch.setattr(session_marks, "FRESH_S", DEADLINE_S)
    looks: list[float] = []
    looked = threading.Event()
    connected = hook_process.connect

    def look(folder: str, timeout_s: float) -> socket.socket | None:
        looks.append(time.monotonic())
        if len(looks) > 1:
            looked.set()
        return connected(folder, timeout_s)

    written: list[bytes] = []
    monkeypatch.setattr(hook_process, "connect", look)
    monkeypatch.setattr(os, "write", lambda fd, data: len(data) if fd != 1 else written.append(data) or len(data))

    def run(prompt: str) -> None:
        told = {"hook_event_name": "UserPromptSubmit", "prompt": prompt, "cwd": str(tmp_path)}
        monkeypatch.setattr(hook_process.Hook, "_stdin", lambda _hook: json.dumps(told).encode())
        hook_process.Hook(time.monotonic()).run()

    run(QUESTION)  # no session starts
    session_marks.note(str(state))
    run("run the tests")
    assert len(looks) == 2
    looks.clear()
    looked.clear()
    hook = threading.Thread(target=run, args=(QUESTION,))
    hook.start()
    assert looked.wait(DEADLINE_S)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen()
        peer, _ = listener.accept()
        with peer:
            asked = json.loads(peer.recv(65_536))
            time.sleep(2 * hook_process.DEADLINE_S)  # a daemon is starting
            peer.sendall(b'{"context": "a hit"}\n')
        hook.join()
    assert hook_process.DEADLINE_S * 1000 < asked["ms"] <= DEADLINE_S * 1000
    assert b"a hit" in b"".join(written)


def test_a_session_spares_its_client_until_a_prompt_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that has its lists has a start of its own to get through: the link, which takes the processor, comes behind it."""
    machine = Machine(tmp_path, "ann")
    del machine.env[IS_PATIENT]
    state = machine.home / "proxy"
    monkeypatch.setattr(stdio, "SETTLE_S", 2 * DEADLINE_S)
    monkeypatch.setattr(stdio, "MOST_SETTLE_S", 2 * DEADLINE_S)
    session_marks.hurry(str(state))
    os.utime(state / "hooks/awaited", (1.0, 1.0))  # of a session before
    reading, writing = os.pipe()
    with os.fdopen(reading), os.fdopen(writing, "wb", buffering=0) as client:
        settling = stdio.Settling(str(state))
        settling.go_on()
        over: list[bool] = []
        waiting = threading.Thread(target=lambda: over.append(settling.is_over(stdio.Lines(reading))), daemon=True)
        waiting.start()
        session_marks.note(str(state))
        assert fired(machine, "UserPromptSubmit", prompt="run the tests") is None
        assert waiting.is_alive()
        end = time.monotonic() + DEADLINE_S
        while waiting.is_alive() and time.monotonic() < end:  # a hook that a busy machine starts late waits for nobody
            session_marks.note(str(state))
            assert fired(machine, "UserPromptSubmit", prompt=QUESTION) is None
            waiting.join(0.1)
        assert over == [True]
        os.utime(state / "hooks/awaited", (1.0, 1.0))
        client.write(b"{}\n")
        assert not settling.is_over(stdio.Lines(reading))  # what it says comes first


async def test_a_holder_that_is_stopped_or_killed_is_followed(tmp_path: Path) -> None:
    """Fifty hooks at once; a stopped listener costs less than half a second; after a kill -9 another session sits down, and knows what
    was shown."""
    async with listening(tmp_path) as (machine, _, first):
        del machine.env[IS_PATIENT]
        os.utime(machine.home / "proxy/hooks/starting", (1.0, 1.0))  # a session that begins is waited for longer

        async def asked(session: str) -> str:
            return context(await said(machine, "UserPromptSubmit", prompt=QUESTION, session_id=session))

        found = await asyncio.gather(*(asked(f"s{number}") for number in range(50)))
        assert all(each == "" or "We chose postgres" in each for each in found)
        assert len(outcomes(machine)) == 50
        assert {each.split()[1] for each in outcomes(machine)} <= {counts.ANSWERED, counts.LATE, counts.SILENT}
        async with asyncio.timeout(DEADLINE_S):
            while not await asked("a"):  # noqa: ASYNC110 - a hook is asked until it is answered, as fifty have just been
                await asyncio.sleep(0.1)

        kept = machine.home / "proxy/hooks/shown.json"
        await asyncio.to_thread(wait_until, "it to be kept", lambda: len(json.loads(kept.read_text())) == 51)
        first.process.send_signal(signal.SIGSTOP)
        await asyncio.to_thread(wait_until, "the holder to stand still", lambda: stands_still(first.process.pid))
        assert await asked("b") == ""
        last = counts.read(str(machine.home / "proxy"))[-1]
        assert last[2] == counts.LATE
        assert hook_process.DEADLINE_S * 1000 - 50 <= last[3] < LATEST_S * 1000

        with await asyncio.to_thread(Wire, machine) as second:
            await asyncio.to_thread(second.open)
            first.process.kill()
            async with asyncio.timeout(DEADLINE_S):
                while not await asked("b"):  # noqa: ASYNC110 - the same
                    await asyncio.sleep(0.1)
            assert await asked("a") == ""  # it was shown that already
            assert "We chose postgres" in await asked("c")
