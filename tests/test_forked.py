"""A program that is forked for a test behaves as one that is started: compared by the same acts on both."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.programs import forked
from tests.support.programs.forked import Program
from tests.support.programs.processes import CONFIDE, CONFIDED, Daemon, Machine, wait_until
from tests.support.programs.wire import Wire

pytestmark = pytest.mark.skipif(not forked.IS_SUPPORTED, reason="programs are forked on Linux alone")
LIBRARY_S_SIGNALS = 0b11 << 31
"""32 and 33, which glibc hides from programs."""
FACTS = ("Umask", "SigBlk", "SigIgn", "SigCgt", "NoNewPrivs")
KILLED_OWNER = """
import os, sys, time
from tests.support.programs import forked
os.environ.update(forked.SURROUNDINGS)
program = forked.Program([str(forked.BIN / "confide"), "mcp"], stdout=-3)
print(forked._zygotes["confide"].pid, program.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def foreground() -> Iterator[None]:
    """Signals as at a terminal: behind `nohup`, and behind a script's `&`, whoever is started as usual ignores two of them."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """It has no daemon, and starts none."""
    machine = Machine(tmp_path, "ann")
    (machine.home / "proxy.toml").write_text("on_demand = false\n")
    return machine


def result(start: type[subprocess.Popen[Any]], machine: Machine, command: Sequence[str]) -> tuple[int, bytes, bytes]:
    """Exit code, standard output and error of a command."""
    pipe = subprocess.PIPE
    with start(command, cwd=machine.project, env=machine.env, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        out, err = process.communicate(b"", timeout=DEADLINE_S)
    return process.returncode, out, err


@pytest.mark.parametrize(
    "command",
    [
        (CONFIDE, "key", "show"),
        (CONFIDE, "--nonsense"),
        (CONFIDE, "status"),
        (CONFIDED, "init", "--help"),
        (CONFIDED, "serve", "--data", "/nowhere"),
    ],
    ids=lambda command: " ".join(command[1:]),
)
def test_says_and_ends_the_same(machine: Machine, command: Sequence[str]) -> None:
    """The same words on the same streams, and the same exit code."""
    machine.run("key", "show")
    assert result(Program, machine, command) == result(subprocess.Popen, machine, command)


@pytest.mark.parametrize("program", [CONFIDE, CONFIDED])
def test_what_tests_start_is_forked(tmp_path: Path, program: str) -> None:
    """A library that reads a variable which differs makes a start ordinary, unseen: the suite takes half as long again then."""
    env = Daemon(tmp_path).env if program == CONFIDED else Machine(tmp_path, "ann").env
    zygote = forked.zygote_of([program])
    assert zygote is not None
    differs = {name for name in {*zygote.read} - forked.HARMLESS if zygote.env.get(name) != env.get(name)}
    assert zygote.suits(env), differs


def channels(pid: int) -> set[str]:
    """The sockets and pipes that a process has open."""
    found = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            target = str(descriptor.readlink())
            if target.startswith(("socket:", "pipe:")):
                found.add(target)
    return found


def own(fact: str) -> str:
    """A line of /proc/*/status without the two signals that the C library takes for itself with the first thread: when that is hangs on
    how far the link is."""
    name, _, value = fact.partition(":")
    return f"{name}: {int(value, 16) & ~LIBRARY_S_SIGNALS:x}" if name.startswith("Sig") else fact


def test_has_the_same_surroundings(machine: Machine) -> None:
    """Working directory, umask, signals, and no descriptor of anybody else's; only the parent is another."""
    seen = []
    parents = []
    for start in (subprocess.Popen, Program):
        with Wire(machine, start=start) as wire:
            wire.open()
            process = psutil.Process(wire.process.pid)
            status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            facts = [own(line) for line in status if line.startswith(FACTS)]
            inherited = channels(process.pid) & {*channels(os.getpid()), *channels(process.ppid())}
            # What it has opened itself hangs on how far its link is.
            assert not inherited - {str(Path(f"/proc/{process.pid}/fd/{stream}").readlink()) for stream in range(3)}
            seen.append((process.cwd(), os.getsid(process.pid), os.getpgid(process.pid), facts))
            parents.append(process.ppid())
    assert seen[0] == seen[1]
    assert parents[0] == os.getpid() != parents[1]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_ends_by_signals_the_same(machine: Machine, number: signal.Signals) -> None:
    """The code is that of the signal, for those who wait and those who ask."""
    codes = []
    for start in (subprocess.Popen, Program):
        with Wire(machine, start=start) as wire:
            wire.open()
            assert wire.process.poll() is None
            with pytest.raises(subprocess.TimeoutExpired):
                wire.process.wait(0.01)
            wire.process.send_signal(number)
            codes.append((wire.process.wait(DEADLINE_S), wire.process.poll()))
    assert codes[0] == codes[1]


def test_a_daemon_on_demand_is_forked_as_well(tmp_path: Path) -> None:
    """In the same folder, with the same umask, input, output and log, and it outlives who asked for it."""
    seen: list[list[str]] = []
    is_forked = []
    machine = Machine(tmp_path, "before")
    machine.run("key", "show")
    for start in (subprocess.Popen, Program):
        machine = Machine(tmp_path, start.__name__)
        assert result(start, machine, (CONFIDE, "start"))[0] == 0
        address = machine.local_daemon
        assert address is not None
        process = psutil.Process(address["pid"])
        parent, cwd = process.ppid(), process.cwd()
        umask = next(line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if "Umask" in line)
        streams = [str(Path(f"/proc/{process.pid}/fd/{number}").readlink()) for number in range(3)]
        machine.stop_local_daemon()
        seen.append([fact.replace(str(machine.home), "HOME") for fact in (cwd, umask, *streams)])
        is_forked.append(parent == forked._zygotes["confided"].pid)
    assert seen[0] == seen[1]
    assert is_forked == [False, True]


def test_an_environment_that_was_read_while_loading_needs_a_start(machine: Machine) -> None:
    """The variables of the interpreter are such."""
    with Program([CONFIDE, "mcp"], env={**machine.env, "PYTHONUTF8": "1"}, stdin=subprocess.PIPE) as process:
        assert psutil.Process(process.pid).ppid() == os.getpid()
        process.kill()


def test_another_python_starts_as_always(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose `subprocess` is not made as this one's."""

    class Other(subprocess.Popen[bytes]):
        def _execute_child(self, args: object, options: object) -> None: ...

    assert forked.is_known(subprocess.Popen)
    assert not forked.is_known(Other)
    monkeypatch.setattr(forked, "IS_SUPPORTED", False)
    with Program([CONFIDE, "mcp"], env=machine.env, stdin=subprocess.PIPE) as process:
        assert psutil.Process(process.pid).ppid() == os.getpid()
        process.kill()


def test_the_zygote_ends_with_its_owner_and_what_it_forked_goes_on() -> None:
    """Also if its owner is killed."""
    command = [sys.executable, "-c", KILLED_OWNER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        zygote, program = (psutil.Process(int(word)) for word in owner.stdout.readline().split())
        assert program.ppid() == zygote.pid
        owner.kill()
        wait_until("the zygote to end", lambda: not zygote.is_running() or zygote.status() == psutil.STATUS_ZOMBIE)
        assert program.is_running()
    program.kill()
