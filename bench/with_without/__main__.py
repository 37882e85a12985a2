"""Runs the same small tasks with a real Claude Code or Codex, with and without Confide.

    python -m bench.with_without --client claude                        a scripted model: proves the mechanics alone
    python -m bench.with_without --client claude --model NAME           a real model: costs money, needs a key

With Confide, the memory has the notes that earlier sessions left about these tasks, and the client is set up as `confide setup --hooks`
does it. A real model needs ANTHROPIC_API_KEY (Claude Code) or CODEX_API_KEY (Codex) in the environment; its commands run on this machine,
below a temporary folder: use a container. The clients are those of `make clients`, in the folder that CONFIDE_CLIENTS names.

Failures repeated are commands that failed as an earlier command of the same session had. No figure of the scripted model says anything
about a real one: it repeats a failed command until the note is before it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.clients import claude, codex
from tests.clients.models import Json, Model, Step, playing
from tests.clients.trial import BIN

from bench.with_without.client_output import Session, of_claude, of_codex

ROOT: Final = Path(__file__).parents[2]
ARMS: Final = ("without", "with")
SCRIPTED: Final = "scripted"
TRIES: Final = 3
"""Times that the scripted model tries what fails, where no note tells it better."""
SESSION_S: Final = 600.0
KEYS: Final = {"claude": "ANTHROPIC_API_KEY", "codex": "CODEX_API_KEY"}
PROGRAMS: Final = {"claude": claude.PROGRAM, "codex": codex.PROGRAM}
TOOLS: Final = "Bash,Edit,Write,Read,Glob,Grep,mcp__confide__memory_search,mcp__confide__memory_read"


@dataclass(frozen=True, slots=True)
class Task:
    """A task of tasks.toml."""

    name: str
    prompt: str
    note: str
    done: str
    tries: str
    fix: str
    files: dict[str, str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a task in one session, with or without Confide."""

    task: str
    arm: str
    is_solved: bool
    seconds: float
    session: Session


class Reacting(Model):
    """A model that follows a note once it has one, and repeats the same command until then."""

    def __init__(self, task: Task, tool: str, argument: str) -> None:
        super().__init__(())
        self._task, self._tool, self._argument = task, tool, argument
        self._tried = 0
        self._is_done = False

    def step(self, body: Json) -> Step:
        """Decide on the next step from what the request contains."""
        if self._is_done:
            return Step(text="done")
        # The note's last words: its first are the error, which the failed command prints too.
        is_told = json.dumps(self._task.note[-40:])[1:-1] in json.dumps(body)
        self._is_done = is_told or self._tried == TRIES
        self._tried += 1
        return Step(self._tool, {self._argument: self._task.fix if self._is_done else self._task.tries, **self._more()})

    def _more(self) -> Json:
        return {"description": "x"} if self._tool == "Bash" else {}


class Place:
    """A home and a project of their own for one session."""

    def __init__(self, root: Path, task: Task, clients: Path) -> None:
        self.home, self.project = root / "home", root / "project"
        self.home.mkdir(parents=True)
        for path, text in task.files.items():
            file = self.project / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.lstrip("\n"), encoding="utf-8")
        node = Path(shutil.which("node") or "/usr/bin/node").parent
        self.environment = {"HOME": str(self.home), "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin:{node}"}
        self.environment |= {"LANG": "C.UTF-8", "TERM": "xterm-256color", "CODEX_HOME": str(self.home / ".codex")}
        (self.home / ".codex").mkdir()
        self._clients = clients
        self.run("git", "init", "-q")

    def run(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.project,
            env=self.environment | more,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SESSION_S,
        )

    def confide(self, *words: str) -> None:
        """Run a command of Confide. Raises RuntimeError."""
        done = self.run(str(BIN / "confide"), *words)
        if done.returncode:
            raise RuntimeError(f"confide {words[0]} ended with {done.returncode}: {done.stderr[-500:]}")

    @contextmanager
    def memory(self, client: str, notes: Sequence[str]) -> Iterator[None]:
        """A memory with these notes, and the client set up for it."""
        self.confide("quickstart", "--no-write")
        try:
            for note in notes:
                self.confide("store", note)
            self.confide("sync")
            words = ("claude-code", "--user") if client == "claude" else ("codex",)
            self.confide("setup", *words, "--write", "--hooks")
            yield
        finally:
            self.run(str(BIN / "confide"), "stop")

    def session(self, client: str, task: Task, model: str) -> Session:
        """Run one session of the client, with a real model or with the scripted one."""
        if model != SCRIPTED:
            return self._asked(client, task, model, {KEYS[client]: os.environ[KEYS[client]]})
        tool, argument = ("Bash", "command") if client == "claude" else ("exec_command", "cmd")
        with playing(model=Reacting(task, tool, argument)) as played:
            address = f"http://127.0.0.1:{played.port}"
            there = {"ANTHROPIC_BASE_URL": address, KEYS["claude"]: "made-up", KEYS["codex"]: "made-up"}
            return self._asked(client, task, "", there, address)

    def _asked(self, client: str, task: Task, model: str, there: dict[str, str], address: str = "") -> Session:
        program = str(self._clients / PROGRAMS[client])
        chosen = ["--model", model] if model else []
        if client == "claude":
            command = [program, "-p", task.prompt, "--output-format", "stream-json", "--verbose", *chosen]
            done = self.run(*command, "--allowedTools", TOOLS, **there, **dict.fromkeys(claude.QUIET, "1"))
            return of_claude(done.stdout)
        if address:
            # The scripted model runs no command that tasks.toml does not have.
            settings = self.home / ".codex/config.toml"
            before = settings.read_text(encoding="utf-8") if settings.exists() else ""
            provider = f'[model_providers.fake]\nname = "fake"\nbase_url = "{address}/v1"\nwire_api = "responses"\n'
            provider += f'env_key = "{KEYS["codex"]}"\n'
            first = 'model = "fake"\nmodel_provider = "fake"\napproval_policy = "never"\n'
            settings.write_text(f"{first}{before}\n{provider}", encoding="utf-8")
        sandbox = "danger-full-access" if address else "workspace-write"
        command = [program, "exec", "--json", "--skip-git-repo-check", "--sandbox", sandbox, *chosen]
        return of_codex(self.run(*command, "--dangerously-bypass-hook-trust", task.prompt, **there).stdout)


def main() -> None:
    """Run all tasks in both ways, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--client", choices=sorted(PROGRAMS), default="claude")
    parser.add_argument("--model", default=SCRIPTED, help="a model of the client's provider; costs money")
    parser.add_argument("--rounds", type=int, default=1, help="sessions for each task and way")
    parser.add_argument("--report", type=Path, help="a file for the report, beside the terminal")
    options = parser.parse_args()
    clients = Path(os.environ.get("CONFIDE_CLIENTS") or ROOT / ".venv/clients").absolute()
    if not (clients / PROGRAMS[options.client]).exists():
        sys.exit(f"{options.client} is not in {clients}; make clients installs it where there is npm")
    if options.model != SCRIPTED and not os.environ.get(KEYS[options.client]):
        sys.exit(f"a real model needs {KEYS[options.client]} in the environment")
    tasks = read_tasks()
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="confide-with-", ignore_cleanup_errors=True) as name:
        for number in range(options.rounds):
            for task in tasks:
                for arm in ARMS:
                    place = Place(Path(name) / f"{number}-{task.name}-{arm}", task, clients)
                    outcomes.append(tried(place, options.client, task, arm, options.model, [one.note for one in tasks]))
                    print(line(outcomes[-1]), flush=True)
    text = report(outcomes, options.client, options.model)
    print(f"\n{text}")
    if options.report:
        options.report.write_text(text, encoding="utf-8")


def read_tasks() -> list[Task]:
    """Return the tasks of tasks.toml."""
    return [Task(**one) for one in tomllib.loads(Path(__file__).with_name("tasks.toml").read_text("utf-8"))["task"]]


def tried(place: Place, client: str, task: Task, arm: str, model: str, notes: Sequence[str]) -> Outcome:
    """Give a task to the client once."""

    def timed() -> Outcome:
        began = time.monotonic()
        session = place.session(client, task, model)
        return Outcome(task.name, arm, (place.project / task.done).exists(), time.monotonic() - began, session)

    if arm == "without":
        return timed()
    with place.memory(client, notes):
        return timed()


def line(one: Outcome) -> str:
    """Return one session as a line of the report's table."""
    cells: list[Any] = [one.task, one.arm, "yes" if one.is_solved else "no", len(one.session.failures)]
    cells += [one.session.repeated, one.session.tokens_in, one.session.tokens_out, f"{one.seconds:.1f}"]
    return (
        "| "
        + " | ".join(f"{cell:,}" if isinstance(cell, int) else cell for cell in [*cells, one.session.problem])
        + " |"
    )


def report(outcomes: Sequence[Outcome], client: str, model: str) -> str:
    """Return the report as Markdown."""
    head = "| task | Confide | solved | failures | repeated | tokens in | tokens out | seconds | problem |"
    lines = [f"# {client}, model {model}: the same tasks with and without Confide", ""]
    if model == SCRIPTED:
        lines += ["The model was scripted: this proves the mechanics, and says nothing about a real model.", ""]
    lines += [head, "|---" * head.count(" | ") + "|---|", *(line(one) for one in outcomes), ""]
    for arm in ARMS:
        some = [one for one in outcomes if one.arm == arm]
        solved, failed, again = (
            sum(one.is_solved for one in some),
            sum(len(one.session.failures) for one in some),
            sum(one.session.repeated for one in some),
        )
        tokens = sum(one.session.tokens_in + one.session.tokens_out for one in some)
        seconds = statistics.median(one.seconds for one in some) if some else 0.0
        lines.append(
            f"- {arm}: {solved} of {len(some)} solved, {failed} failures, {again} of them repeated, {tokens:,} tokens, "
            f"median {seconds:.1f} s"
        )
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
