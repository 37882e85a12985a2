"""The real programs as processes: a daemon, a machine with the proxy, and an MCP session through it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.deadline import DEADLINE_S
from tests.support.network.ports import free_port
from tests.support.patience import IS_PATIENT
from tests.support.programs.command import confide, confided
from tests.support.programs.forked import BIN, FOR_NATIVE_CODE, SURROUNDINGS, Program, run

from confide_proxy.sync.project_names import ClaimOutcome, NameOrigin

CONFIDE = str(BIN / "confide")
CONFIDED = str(BIN / "confided")
COMMAND_DEADLINE_S = 120.0
GO_ON = {"hook", "mcp", "panel", "daemon", "http serve", "task runner", "sync --watch"} | {
    *("move", "open", "runner", "serve", "start", "stop", "watch"),  # as they were spelled before
}
"""The commands that go on until they are told to end, or leave a process behind that does."""
NO_MODEL = '[embedding]\nprovider = "hashed"\n'
"""A daemon that loads no model: three tenths of a second for every daemon, in tests that do not search by meaning."""
SERVER_KEEPS = '[at_rest]\ncustody = "server"\n'
"""One that opens its databases by itself, for machines that bring it no key: bare connections, and others' clients."""


def wait_until(what: str, condition: Any, deadline_s: float = DEADLINE_S) -> Any:
    """The first true value of `condition()`; fails the test with `what` when the deadline passes."""
    end = time.monotonic() + deadline_s
    asked = time.monotonic()
    while not (value := condition()):
        now = time.monotonic()
        assert now < end, f"waited {deadline_s:.0f} s for {what}"
        # A condition that asks a program or a daemon must not keep the machine busy that it waits for.
        time.sleep(min(max(0.02, 2 * (now - asked)), 0.2))
        asked = time.monotonic()
    return value


def stands_still(pid: int) -> bool:
    """Whether all threads of a process that is stopped have come to rest: on a busy machine some of them answer for a while."""
    try:
        states = [stat.read_text().rpartition(")")[2].split()[0] for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:  # one has just ended
        return False
    return set(states) <= {"T"}


class Machine:
    """One user's machine: a home for Confide and a project folder."""

    def __init__(
        self, root: Path, name: str, *, has_model: bool = False, is_set_up: bool = True, program: str = CONFIDE
    ) -> None:
        """
        Args:
            program: `confide`, of this version or another.
            has_model: a daemon that is started on demand embeds with the packaged model, as it does for people.
            is_set_up: this machine may have a daemon of its own, as after `confide quickstart`.
        """
        self.name = name
        self.program = program
        self.home = root / name / "home"
        self.project = root / name / "project"
        self.home.mkdir(parents=True)
        if not has_model:
            (self.home / "daemon.toml").write_text(NO_MODEL)
        (self.project / "memory").mkdir(parents=True)
        if is_set_up:
            (self.home / "daemon").mkdir(mode=0o700)
            self.allow("project")
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("CONFIDE")},
            "CONFIDE_HOME": str(self.home),
            "HOME": str(root / name),
            IS_PATIENT: "1",
            **SURROUNDINGS,
        }

    def allow(self, name: str, folder: Path | None = None) -> None:
        """What `confide project allow` keeps: the devices of one space have folders of one name here, without a remote."""
        kept = self.home / "proxy" / "projects.jsonl"
        kept.parent.mkdir(mode=0o700, exist_ok=True)
        decision = ClaimOutcome(str((folder or self.project).resolve()), name, NameOrigin.ALLOWED, "0" * 8)
        with open(kept, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(decision.line())

    def call_project(self, name: str) -> None:
        """Have the project's folder call itself so, and be it."""
        (self.project / ".confide.toml").write_text(f'name = "{name}"\n')
        self.allow(name)

    def write(self, path: str, text: str) -> Path:
        """A file of the project."""
        file = self.project / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def run(self, *arguments: str, code: int = 0, stdin: str | None = None, program: str = "") -> str:
        """Run a command in the project; its exit code must be `code`. Returns stdout and stderr together."""
        command = [program or self.program, *arguments]
        done = run(command, cwd=self.project, env=self.env, input=stdin, timeout=COMMAND_DEADLINE_S)
        return self._told(arguments, done.returncode, done.stdout + done.stderr, code)

    @staticmethod
    def _told(arguments: Sequence[str], ended: int, text: str, code: int) -> str:
        assert ended == code, f"{arguments[0]} ended with {ended}, not {code}:\n{text}"
        assert "Traceback" not in text, text
        assert "was destroyed" not in text, text  # a task that nobody ended
        return text

    def json(self, *arguments: str) -> Any:
        """Run a command with --json; the parsed answer."""
        done = run([self.program, *arguments, "--json"], cwd=self.project, env=self.env, timeout=COMMAND_DEADLINE_S)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    @property
    def local_daemon(self) -> dict[str, Any] | None:
        """What the on-demand daemon of this machine wrote about itself, if one runs."""
        try:
            address: dict[str, Any] = json.loads((self.home / "daemon" / "daemon.address").read_bytes())
            os.kill(address["pid"], 0)
        except (OSError, ValueError):
            return None
        return address

    def stop_local_daemon(self) -> None:
        """End the on-demand daemon and wait until it is gone."""
        if address := self.local_daemon:
            os.kill(address["pid"], signal.SIGTERM)
            wait_until("the local daemon to end", lambda: self.local_daemon is None)


class Inside(Machine):
    """A machine whose commands run in this process once it has joined: for what they do and say. They cost half of what programs cost.
    That each command is a program that works is shown by tests/e2e/cli, by the pages' commands there, and where `program` is named.

    Where nothing has joined yet, a command starts a daemon, and is a program; so is one that goes on, one whose environment differs in what
    is read when a process begins, and one that is asked for while this process has a loop of its own, or by another thread than the first.
    """

    def run(self, *arguments: str, code: int = 0, stdin: str | None = None, program: str = "") -> str:
        """As `Machine.run`, unless a `program` is named."""
        if program or not self._is_here(arguments):
            return super().run(*arguments, code=code, stdin=stdin, program=program)
        ended = confide(self, *arguments, stdin=stdin or "")
        return self._told(arguments, ended.code, ended.out + ended.err, code)

    def json(self, *arguments: str) -> Any:
        """As `Machine.json`."""
        if not self._is_here(arguments):
            return super().json(*arguments)
        ended = confide(self, *arguments, "--json")
        assert ended.code == 0, ended.err
        return json.loads(ended.out)

    def _is_here(self, arguments: Sequence[str]) -> bool:
        if (
            self.program != CONFIDE
            or not {arguments[0], " ".join(arguments[:2])}.isdisjoint(GO_ON)
            or threading.current_thread() is not threading.main_thread()
        ):
            return False
        native = (name for name in self.env.keys() | os.environ.keys() if name.startswith((*FOR_NATIVE_CODE, "TZ")))
        if any(self.env.get(name) != os.environ.get(name) for name in native):
            return False
        has_joined = arguments[0] == "join" or (self.home / "proxy" / "link.json").exists()
        return has_joined and asyncio._get_running_loop() is None


class Daemon:
    """A `confided serve` process on a loopback port, in a data folder of its own."""

    def __init__(
        self,
        root: Path,
        *,
        host: str = "127.0.0.1",
        has_model: bool = False,
        opens_itself: bool = False,
        program: str = CONFIDED,
    ) -> None:
        """Without a model unless `has_model` says so, or `server-home/daemon.toml` is there already. `opens_itself`: `SERVER_KEEPS`.

        `program`: `confided`, of this version or another. A data folder that is there already is served as it is.
        """
        self.program = program
        self.host = host
        self.data = root / "server"
        self.log = root / "server.log"
        self.env = {**{k: v for k, v in os.environ.items() if not k.startswith("CONFIDE")}, "HOME": str(root)}
        home = root / "server-home"
        self.env["CONFIDE_HOME"] = str(home)
        home.mkdir(parents=True, exist_ok=True)
        if not has_model and not (home / "daemon.toml").exists():
            (home / "daemon.toml").write_text(NO_MODEL + SERVER_KEEPS * opens_itself)
        self.port = free_port(host)
        self._process: subprocess.Popen[bytes] | None = None
        if not self.data.exists():
            self._begin("init")

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run a `confided` command on this data folder. Returns stdout and stderr together."""
        done = run([self.program, *arguments, "--data", str(self.data)], env=self.env, timeout=COMMAND_DEADLINE_S)
        text = done.stdout + done.stderr
        assert done.returncode == code, f"{arguments} ended with {done.returncode}, not {code}:\n{text}"
        return text

    def start(self, *options: str) -> None:
        """Serve; returns once it listens. The port stays the same over restarts."""
        with self.log.open("ab") as log:
            self._process = Program(
                [self.program, "serve", "--listen", f"{self.host}:{self.port}", "--data", str(self.data), *options],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_until("the daemon to listen", self._address)

    def _address(self) -> dict[str, Any] | None:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()
        try:
            address: dict[str, Any] = json.loads((self.data / "daemon.address").read_bytes())
        except (OSError, ValueError):
            return None
        return address if address["pid"] == self._process.pid else None

    def signal(self, number: int) -> None:
        """Send the process a signal; what is stopped by it stands still when this returns."""
        assert self._process is not None
        pid = self._process.pid
        self._process.send_signal(number)
        if number == signal.SIGSTOP:
            wait_until("the daemon to stand still", lambda: stands_still(pid))

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(DEADLINE_S)

    def stop(self) -> None:
        """SIGTERM, and wait."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(DEADLINE_S)

    def invite(self, name: str, *options: str, port: int | None = None) -> str:
        """The string for one machine."""
        url = f"confide://{self.host}:{port or self.port}"
        text = self._begin("invite", name, "--no-wait", "--json", "--url", url, *options)
        invite: str = json.loads(text)["invite"]
        return invite

    def _begin(self, *arguments: str) -> str:
        """As `run`, with which nearly every test begins: today's command in this process, for a quarter of what the program costs."""
        if self.program != CONFIDED:
            return self.run(*arguments)
        ended = confided(self.env, *arguments, "--data", str(self.data))
        assert ended.code == 0, ended.err
        return ended.out


@contextmanager
def running_daemon(
    root: Path, *, host: str = "127.0.0.1", has_model: bool = False, opens_itself: bool = False
) -> Iterator[Daemon]:
    """A daemon that is stopped at the end; an IPv6 `host` stands in brackets. `opens_itself`: `SERVER_KEEPS`."""
    daemon = Daemon(root, host=host, has_model=has_model, opens_itself=opens_itself)
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()
