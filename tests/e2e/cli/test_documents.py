"""Every command in the documents runs as it is written, in order, from a fresh home."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.programs.forked import BIN, Program, run
from tests.support.programs.gateway import Gateway, serving
from tests.support.programs.processes import COMMAND_DEADLINE_S, CONFIDED, Machine, wait_until

ROOT = Path(__file__).parents[3]
FOLLOWED_ELSEWHERE = {
    "cluster.md": "tests/addons/cluster/test_store_cli.py",
}
"""Documents whose commands need more than a fresh home, and the test that follows each command by command."""
SECTIONS_ELSEWHERE = {
    "http.md": ("With drawlatch and callboard", "tests/addons/http/e2e/test_callboard_page.py"),
    "secrets.md": ("Use a secret unseen", "tests/e2e/cli/test_secret_run.py"),
    "tasks.md": ("Try a night", "tests/addons/night/e2e/test_the_page.py"),
}
"""Of a document a section whose commands take more: one that runs until it is killed."""
BEFORE = {"http-server.md": ["confide quickstart"]}
"""Commands that a document takes for granted: a server that has a space."""
DOCUMENTS = sorted(
    path for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")] if path.name not in FOLLOWED_ELSEWHERE
)
INDEXED = {"notes.md": {"notes/Home.md", "notes/Pool.md"}}
"""What the daemon has in the end, where a page's commands would end well without it."""
PRINTS = {
    "README.md": {'confide search "why postgres"': "We chose postgres over mysql"},
    "tour.md": {
        'confide search "why postgres"': "We chose postgres over mysql",
        'confide search "deploy bot"': "(sealed:password:",
        "confide restore --list": "memory/decisions.md",
    },
    "notes.md": {
        'confide search "when is staging reset"': "reset on Mondays",
        "confide ls --tag ops": "Deploys",
        'confide search "pki"': "signing-key.md",
        'confide search "which soup is there today"': "lentils",
        'confide search "how many connections"': "twenty connections",
    },
    "devices.md": {"confide device ls": "the key of its database", "confide device invite laptop": "#invite1"},
    "http.md": {"confide http token ls": "editor"},
    "http-server.md": {"confided http ls": "chat"},
    "secrets.md": {"confide secrets scan --stored --dry-run": "no credentials in clear"},
    "tasks.md": {"confide task ls": "Update the changelog", "confide task show 3f9a2c": "Update the changelog."},
    "upgrading.md": {"confide doctor": "versions"},
    "server.md": {"confide status": "link up", "confide daemon move --dry-run": "revision"},
    "operating.md": {"confided device edit laptop work": "work", "confided space ls": "laptop"},
    "backup.md": {"confided backup verify": "verified"},
    "importing.md": {'confide search "row locks"': "We chose Postgres"},
    "history.md": {
        "confide history -n 5": "memory/plan.md",
        "confide history memory/plan.md --diff": "start on tuesday",
        "confide read memory/plan.md --revision 1": "start on monday",
        "confide restore --since 1h --dry-run": "memory/plan.md",
    },
    "forgetting.md": {"confide forget memory/private --dry-run": "memory/private/diary.md"},
}
"""For commands of a page what they print: a command may end well and find nothing."""
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
TARGET = "/srv/backups/confide"
"""In documents, a folder on another disk."""
SNAPSHOT = re.compile(r"\d{4}-\d\d-\d\dT\d{6}Z")
TOKEN = re.compile(r"cfd_[\w-]{43}")
EXAMPLE_TASK = "3f9a2c"
"""The id of a task, in documents."""
TASK = re.compile(r"task ([0-9a-f]{16}) is queued")
QUOTED = re.compile(r"""'[^']*'|"[^"$`\\\\]*\"""")
"""What a shell leaves as it is."""
PIPED = re.compile(rf"echo ({QUOTED.pattern}) \| (confide .*)")
"""What a person says to a command needs no shell, in which the command would be an interpreter of its own."""
INVITE = re.compile(r"confides?://\S+/#invite1\w+")


def commands(document: Path) -> list[str]:
    """The lines behind `$ `, without their comments."""
    text = document.read_text(encoding="utf-8")
    if document.name in SECTIONS_ELSEWHERE:
        before, _, section = text.partition(f"\n## {SECTIONS_ELSEWHERE[document.name][0]}\n")
        text = before + section.partition("\n## ")[2]
    blocks = "".join(BLOCK.findall(text))
    return [re.sub(r"\s{2,}#.*", "", line[2:]) for line in blocks.splitlines() if line.startswith("$ ")]


def test_all_shell_blocks_are_run() -> None:
    """A block that this test would pass over is a mistake: commands stand in `console` blocks only."""
    for document in DOCUMENTS:
        rest = BLOCK.sub("", document.read_text(encoding="utf-8"))
        assert not re.search(r"^\s*\$?\s*confided? [a-z]", rest, re.MULTILINE), document.name


def test_what_is_followed_elsewhere_is() -> None:
    for name, test in FOLLOWED_ELSEWHERE.items():
        assert f"docs/{name}" in (ROOT / test).read_text(encoding="utf-8") or f'"{name}"' in (ROOT / test).read_text(
            encoding="utf-8"
        )
    for name, (section, test) in SECTIONS_ELSEWHERE.items():
        assert f"## {section}\n" in (ROOT / "docs" / name).read_text(encoding="utf-8")
        assert f'"## {section}\\n"' in (ROOT / test).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "document",
    [pytest.param(path, id=path.name) for path in DOCUMENTS if commands(path)],
)
def test_commands_work_as_written(document: Path, tmp_path: Path) -> None:
    """One shell for one document; what needs another machine's string gets the one that was just printed."""
    # The one that everybody starts with has the model. A line without a shell's syntax needs no shell (what is installed, started as
    # people do, has its test in `test_package`).
    reader = Reader(tmp_path, has_model=document.name == "README.md")
    try:
        prints = PRINTS.get(document.name, {})
        assert prints.keys() <= set(commands(document))
        for command in BEFORE.get(document.name, []):
            reader.type(command)
        for command in commands(document):
            said = reader.type(command)
            assert prints.get(command, "") in said, f"{command}\n{said}"
        if document.name in INDEXED:
            found = {each["path"] for each in reader.machine.json("ls", "--limit", "100")["documents"]}
            assert INDEXED[document.name] <= found
    finally:
        reader.leave()


class Reader:
    """A person at a terminal who types what the document says."""

    def __init__(self, root: Path, *, has_model: bool) -> None:
        self._root = root
        self._has_model = has_model
        self._homes = 0
        self._server: subprocess.Popen[bytes] | None = None
        self._invite = ""
        self._token = ""
        self._task = EXAMPLE_TASK
        self._gateway: Gateway | None = None
        self._stack = ExitStack()
        self._former: Machine | None = None
        self._move()

    def _move(self) -> None:
        self._homes += 1
        self.machine = Machine(self._root, f"home{self._homes}", has_model=self._has_model)
        self.machine.write("MEMORY.md", "# Facts\n\nThe API listens on port 8010.\n")
        self.machine.env["PATH"] = f"{BIN}:{self.machine.env['PATH']}"

    def type(self, command: str) -> str:
        """Run one line, which must succeed; return what it prints."""
        if command.startswith(("pip install", "uv tool install")):
            return ""  # the programs under test are installed already, from this tree (test_installs installs them)
        if command.startswith(("confide http approve", "confide http rm", "confided http allow --open")):
            # A program opens a page with words, and ten minutes go by: tests/addons/http/server/test_oauth.py.
            return ""
        if command.startswith("confided init"):
            self.leave()
            self._former = self.machine if self._homes else None
            self._move()
        if command.startswith(("confide daemon move", "confide move")):
            return self._take_along(command)
        if command.startswith("confided serve"):
            self._serve()
            return ""
        if command in ("confide http serve", "confide serve"):
            self._gateway = self._stack.enter_context(serving(self.machine))
            return ""
        if command.startswith("export CONFIDE_TOKEN="):
            self.machine.env["CONFIDE_TOKEN"] = self._token
            return ""
        if command.startswith("curl"):
            if shutil.which("curl") is None:
                return ""
            assert self._gateway is not None
            command = command.replace("http://127.0.0.1:7734", self._gateway.url).replace("curl -s", "curl -sf")
        command = command.replace(TARGET, str(self._root / "backups"))
        # The space in a document is an example too; the one of this machine is called so.
        command = command.replace("--space home", "--space local")
        if command.startswith("confided restore"):
            self._lose_and_restore(command)
            return ""
        if command.startswith("confided backup"):
            command += self._have_target(is_new="init" in command)
        command = SNAPSHOT.sub(lambda _name: self._newest(), command)
        command = command.replace(EXAMPLE_TASK, self._task)
        asked = self._invite if command.startswith("confide join") else None
        command = "confide join" if asked else command
        said = self._run(command + (" --no-wait" if command.startswith("confided invite") else ""), asked)
        if found := TOKEN.search(said):
            self._token = found.group()
        if found := TASK.search(said):
            self._task = found[1]
        if found := INVITE.search(said):
            # The address in a document is an example; the secret part is what was printed.
            self._invite = f"{self._address()['url'].rstrip('/')}/#{found.group().split('#')[1]}"
        return said

    def _have_target(self, *, is_new: bool) -> str:
        """A server, and its daemon.toml with what the document says is to be written there; or what a daemon that runs has to be told."""
        if not (self.machine.home / "daemon/identity.key").exists():
            self._run("confided init", None)
        if is_new:
            return ""
        target, config = self._root / "backups", self.machine.home / "daemon.toml"
        if not target.exists():
            self._run(f"confided backup init --to {target}", None)
        if self._server is not None:
            return f" --to {target}"
        if "[backup]" not in config.read_text():
            with config.open("a") as file:
                file.write(f'[backup]\nto = "{target}"\n')
        return ""

    def _newest(self) -> str:
        """The name of the newest snapshot, for the one in the document."""
        return str(json.loads(self._run("confided backup ls --json", None))[-1]["snapshot"])

    def _lose_and_restore(self, command: str) -> None:
        """Restore a server with a backup, which is lost, on a new one: the person types the code that was shown then."""
        self.leave()
        self._move()
        target = self._root / "backups"
        shutil.rmtree(target, ignore_errors=True)
        self._run("confided init", None)
        said = json.loads(self._run(f"confided backup init --to {target} --json", None).splitlines()[0])
        self._run(f"confided backup --to {target}", None)
        (folder,) = (path for path in target.iterdir() if SNAPSHOT.fullmatch(path.name))
        shutil.rmtree(self.machine.home / "daemon")
        self._run(SNAPSHOT.sub(folder.name, command), said["recoveryCode"])

    def _take_along(self, command: str) -> str:
        """The memory that was begun before the server was: the person pastes the invite, and says yes."""
        server, self.machine = self.machine, self._former or self.machine
        try:
            if not (self.machine.home / "daemon/identity.key").exists():
                self._run("confide quickstart", None)
            sure = "" if "--dry-run" in command else " --yes"
            return self._run(command + sure, None if "--to" in command else f"{self._invite}\n")
        finally:
            self._former, self.machine = self.machine, server

    def leave(self) -> None:
        """Stop what the commands have started."""
        self._stack.close()
        self._stop()
        for machine in filter(None, (self.machine, self._former)):
            if (machine.home / "proxy/gateway/running.json").exists():
                wait_until("the daemon that the panel has started", lambda: machine.local_daemon)  # noqa: B023 - at once
                machine.run("panel", "--stop")
            machine.stop_local_daemon()

    def _run(self, command: str, asked: str | None) -> str:
        """`asked` is what the person pastes when the command asks for it."""
        if piped := PIPED.fullmatch(command):
            said, command = piped.groups()
            asked = f"{shlex.split(said)[0]}\n"
        words = shlex.split(command)
        is_plain = words[0] in ("confide", "confided") and not set(QUOTED.sub("", command)) & set("|&;<>$`*?~()")
        words = [str(BIN / words[0]), *words[1:]] if is_plain else ["/bin/sh", "-c", command]
        done = run(words, cwd=self.machine.project, env=self.machine.env, timeout=COMMAND_DEADLINE_S, input=asked)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def _serve(self) -> None:
        self._server = Program(
            [CONFIDED, "serve", "--listen", "127.0.0.1:0"],
            env=self.machine.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until("the daemon to listen", lambda: self.machine.local_daemon)

    def _address(self) -> dict[str, Any]:
        address: dict[str, Any] = json.loads((self.machine.home / "daemon" / "daemon.address").read_bytes())
        return address

    def _stop(self) -> None:
        if self._server is not None:
            self._server.terminate()
            self._server.wait(DEADLINE_S)
            self._server = None
