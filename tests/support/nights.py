"""A night of a user's: a machine with a runner that may do something, a task that is due, and what becomes of it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from tests.support.deadline import DEADLINE_S
from tests.support.programs.forked import Program
from tests.support.programs.processes import CONFIDE, Machine, wait_until
from tests.support.runs import KEY, git


def repository_in(machine: Machine) -> None:
    """Makes a repository of the machine's project."""
    git(machine.project, "init", "-q", "-b", "main")
    (machine.project / "a.txt").write_text("one\n")
    git(machine.project, "add", "a.txt")
    git(machine.project, "commit", "-q", "-m", "first")


def allow(
    machine: Machine, recipes: str, *, url: str = "http://127.0.0.1:9", key: str = "", origin: Path | None = None
) -> None:
    """Write runner.toml. `key`: a placeholder, or else it is in a file; `origin`: of the repository `project`, if it is another one."""
    file = machine.home / "model.key"
    file.write_text(KEY + "\n")
    file.chmod(0o600)
    own = f'key = "{key}"' if key else f'key_file = "{file}"'
    path = machine.home / "runner.toml"
    path.unlink(missing_ok=True)
    text = f'[model]\nurl = "{url}"\n{own}\n[repositories]\nproject = "{origin or machine.project}"\n{recipes}\n'
    path.write_text(text)
    path.chmod(0o600)


def queue(machine: Machine, text: str, recipe: str) -> str:
    """Queue a task that is due now; its id."""
    due = datetime.now().astimezone().isoformat(timespec="seconds")
    words = ("task", "add", "-", "--recipe", recipe, "--repo", "project", "--at", due, "--json")
    return str(json.loads(machine.run(*words, stdin=text).partition("\nnote:")[0])["id"])


@contextmanager
def runner(machine: Machine, *words: str) -> Iterator[Runner]:
    """A runner, killed at the end if it lives."""
    found = Runner(machine, *words)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.wait(DEADLINE_S)
        found.reader.join(10)
        assert found.process.stdout is not None
        found.process.stdout.close()


class Runner:
    """A `confide task runner` process, and what it prints."""

    def __init__(self, machine: Machine, *words: str) -> None:
        command = [CONFIDE, "runner", *words]
        nothing = subprocess.DEVNULL
        self.process = Program(
            command,
            cwd=machine.project,
            env=machine.env,
            stdin=nothing,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.said = ""
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said += line.decode()

    def until(self, text: str) -> None:
        wait_until(f"the runner to say {text!r}; it said {self.said}", lambda: text in self.said)


def inside(word: str) -> list[int]:
    """The processes of this machine, in a sandbox or not, whose command is `sleep` for so long."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes() == f"sleep\0{word}\0".encode():
                found.append(int(path.parent.name))
    return found


def report(machine: Machine) -> str:
    return machine.run("report")
