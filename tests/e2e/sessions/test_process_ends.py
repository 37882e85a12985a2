"""A `confide mcp` whose client is gone is gone as well, whatever it was doing; nothing of it stays behind but the daemon."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import psutil
import pytest
from tests.support.crypto.channels import HOST
from tests.support.deadline import DEADLINE_S
from tests.support.network.relay import RecordingRelay
from tests.support.programs.processes import CONFIDE, Machine, running_daemon, wait_until
from tests.support.programs.wire import OPENING, Wire

from confide_crypto.keys.identity import format_daemon_key


def has_ended(process: psutil.Process) -> bool:
    """Whether it runs no more; one that nobody has waited for yet counts as ended."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def ends_soon(wire: Wire) -> None:
    """Close its input: the process ends in time, with 0, and leaves no child."""
    children = psutil.Process(wire.process.pid).children(recursive=True)
    assert wire.process.stdin is not None
    wire.process.stdin.close()
    assert wire.process.wait(DEADLINE_S) == 0
    wait_until("its children to end", lambda: all(map(has_ended, children)))


@contextmanager
def slow_disk(machine: Machine, root: Path) -> Iterator[None]:
    """From now on `fsync` takes a minute in every Python program that the machine starts."""
    patch = root / "slow"
    patch.mkdir()
    (patch / "sitecustomize.py").write_text("import os, time\nos.fsync = lambda fd: time.sleep(60)\n")
    machine.env["PYTHONPATH"] = str(patch)
    try:
        yield
    finally:
        del machine.env["PYTHONPATH"]


def test_in_the_middle_of_an_upload(tmp_path: Path) -> None:
    """Large files are on their way, and the daemon takes them no further."""
    machine = Machine(tmp_path, "ann")
    with running_daemon(tmp_path) as daemon, RecordingRelay(daemon.port) as relay:
        machine.run("join", daemon.invite("ann", port=relay.port))
        for number in range(2):
            machine.write(f"memory/{number}.md", f"the heron {number}\n" * 20_000 + "\n" * 1_000_000)
        with Wire(machine) as wire:
            wire.open()
            wait_until("an upload", lambda: len(relay.captured) > 300_000)
            daemon.signal(signal.SIGSTOP)
            try:
                ends_soon(wire)
            finally:
                daemon.signal(signal.SIGCONT)


def test_with_a_frozen_daemon_and_calls_on_their_way(tmp_path: Path) -> None:
    """Their answers will never come."""
    machine = Machine(tmp_path, "ann")
    with running_daemon(tmp_path) as daemon:
        machine.run("join", daemon.invite("ann"))
        with Wire(machine) as wire:
            wire.open()
            wire.tool("memory_status", {})
            daemon.signal(signal.SIGSTOP)
            try:
                for _ in range(5):
                    wire.ask("tools/call", {"name": "memory_search", "arguments": {"query": "heron"}})
                machine.write("memory/a.md", "The heron fishes.\n")
                time.sleep(0.3)  # the calls and the file are on their way
                ends_soon(wire)
            finally:
                daemon.signal(signal.SIGCONT)


@pytest.mark.parametrize("answers", [False, True])
def test_while_the_link_is_being_made(tmp_path: Path, answers: bool) -> None:
    """A port that takes connections and says nothing, or not what a daemon says."""
    machine = Machine(tmp_path, "ann")
    with socket.create_server(("127.0.0.1", 0)) as server:
        machine.run("pin", f"ws://127.0.0.1:{server.getsockname()[1]}", format_daemon_key(HOST.static_key))
        with Wire(machine) as wire:
            wire.ask("initialize", OPENING)
            wire.ask("tools/call", {"name": "memory_search", "arguments": {"query": "heron"}})
            peer, _ = server.accept()
            with peer:
                if answers:
                    peer.sendall(b"HTTP/1.1 101 Switching Protocols\r\n")
                ends_soon(wire)


def test_while_the_disk_is_slow(tmp_path: Path) -> None:
    """A revision is being written, and the disk does not confirm it."""
    machine = Machine(tmp_path, "ann")
    with running_daemon(tmp_path) as daemon:
        machine.run("join", daemon.invite("ann"))
        with slow_disk(machine, tmp_path), Wire(machine) as wire:
            wire.open()
            wire.ask("tools/call", {"name": "memory_store", "arguments": {"content": "- x", "path": "memory/a.md"}})
            part = machine.project / "memory"
            wait_until("the write", lambda: any("confide-part" in name for name in os.listdir(part)))
            ends_soon(wire)


@contextmanager
def unread(machine: Machine, stdin: int | BinaryIO) -> Iterator[subprocess.Popen[bytes]]:
    """A server whose client reads nothing of what it says."""
    process = subprocess.Popen(
        [CONFIDE, "mcp"], cwd=machine.project, env=machine.env, stdin=stdin, stdout=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(DEADLINE_S)
        assert process.stdout is not None
        process.stdout.close()


def test_while_the_client_does_not_read(tmp_path: Path) -> None:
    """More answers than the pipe holds."""
    machine = Machine(tmp_path, "ann")
    with running_daemon(tmp_path) as daemon:
        machine.run("join", daemon.invite("ann"))
        with unread(machine, subprocess.PIPE) as process:
            assert process.stdin is not None
            for number in range(2000):
                process.stdin.write(b'{"jsonrpc":"2.0","id":%d,"method":"tools/list"}\n' % number)
                if number == 1:
                    time.sleep(0.5)
            process.stdin.close()
            assert process.wait(DEADLINE_S) == 0


def test_before_the_client_reads_anything(tmp_path: Path) -> None:
    """All is said at once, and more is answered than the pipe holds before there is a link."""
    machine = Machine(tmp_path, "ann")
    asked = tmp_path / "asked"
    asked.write_bytes(b"".join(b'{"jsonrpc":"2.0","id":%d,"method":"tools/list"}\n' % number for number in range(100)))
    with asked.open("rb") as lines, unread(machine, lines) as process:
        assert process.wait(DEADLINE_S) == 0


def test_when_the_client_is_killed_and_another_program_holds_the_pipe(tmp_path: Path) -> None:
    """Its stdin never ends then: a sibling that the client has started as well has the other end."""
    machine = Machine(tmp_path, "ann")
    reading, writing = os.pipe()
    client = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([{CONFIDE!r}, 'mcp'], stdin={reading}, stdout=subprocess.DEVNULL)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-c", client]
    try:
        with subprocess.Popen(
            command, cwd=machine.project, env=machine.env, stdout=subprocess.PIPE, pass_fds=(reading,)
        ) as parent:
            assert parent.stdout is not None
            session = psutil.Process(int(parent.stdout.readline()))
            wait_until("a daemon", lambda: machine.local_daemon)
            linked = time.monotonic()  # it looks after its client since before it has started the daemon
            wait_until("it to be no launcher's", lambda: time.monotonic() > linked + 4)
            assert not has_ended(session)
            parent.kill()
            wait_until("the session to end", lambda: has_ended(session))
    finally:
        os.close(reading)
        os.close(writing)
        machine.stop_local_daemon()


def test_when_the_client_is_killed(tmp_path: Path) -> None:
    """kill -9 of the client: its session ends, the daemon on this machine stays for the next one."""
    machine = Machine(tmp_path, "ann")
    client = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([{CONFIDE!r}, 'mcp'], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    try:
        with subprocess.Popen(
            [sys.executable, "-c", client], cwd=machine.project, env=machine.env, stdout=subprocess.PIPE
        ) as parent:
            assert parent.stdout is not None
            session = psutil.Process(int(parent.stdout.readline()))
            wait_until("a daemon", lambda: machine.local_daemon)
            parent.kill()
            wait_until("the session to end", lambda: has_ended(session), DEADLINE_S)
        assert machine.local_daemon is not None
    finally:
        machine.stop_local_daemon()
