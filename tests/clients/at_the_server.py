"""Claude Code and Codex at the gateway of a server: by a token, and Claude Code by signing in, which a device of the space approves."""

from __future__ import annotations

import http.client
import json
import os
import pty
import re
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tests.clients import claude, codex
from tests.clients.by_url import STEPS, judged
from tests.clients.trial import BIN, FACT, PROMPT, SESSION_S, Trial
from tests.support.programs.processes import wait_until

NAVIGATION: Final = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
HERE: Final = ("--space", "ann", "--json")


@dataclass
class Server:
    """One that serves, and a device of its space `ann`, whose project holds `FACT`."""

    trial: Trial
    url: str
    operator: Mapping[str, str]
    device: Mapping[str, str]

    def confided(self, *words: str) -> Any:
        return json.loads(_must(self.trial, self.operator, "confided", *words))

    def token(self, name: str) -> str:
        """Of the device's project alone, so that nobody has to name it."""
        made = self.confided("gateway", "allow", name, "--scope", "write", "--project", self.project, *HERE)
        return str(made["token"])

    def approve(self, words: str) -> None:
        _must(self.trial, self.device, "confide", "gateway", "approve", words, "--yes", "--project", self.project)

    @property
    def project(self) -> str:
        return self.trial.project.name


@contextmanager
def server(trial: Trial) -> Iterator[Server]:
    """With a memory and ports of its own: one trial has several."""
    root = Path(tempfile.mkdtemp(prefix="at-the-server-", dir=trial.root))
    homes = {name: root / name for name in ("server", "device")}
    for home in homes.values():
        home.mkdir()
    operator, device = (trial.environment("nobody") | {"CONFIDE_HOME": str(home)} for home in homes.values())
    (homes["server"] / "daemon.toml").write_text('[gateway]\nlisten = "127.0.0.1:0"\n')
    _must(trial, operator, "confided", "init")
    command = [str(BIN / "confided"), "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, env=operator, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            port = next(found[1] for line in lines if (found := re.search(r"gateway listens on \S+ port (\d+)", line)))
            written = homes["server"] / "daemon" / "daemon.address"
            wait_until("its address", written.exists)
            address = json.loads(written.read_bytes())["url"]
            invite = _must(trial, operator, "confided", "invite", "ann", "--url", address, "--json")
            _must(trial, device, "confide", "project", "allow")
            _must(trial, device, "confide", "join", json.loads(invite)["invite"])
            _must(trial, device, "confide", "store", FACT, "--path", "memory/decisions.md")
            # Where others are at work the model takes a while to load.
            wait_until("it to be found", lambda: FACT in _must(trial, device, "confide", "search", PROMPT), SESSION_S)
            yield Server(trial, f"http://127.0.0.1:{port}", operator, device)
        finally:
            process.terminate()


def claude_at_the_server(trial: Trial) -> None:
    """By a token that the operator made."""
    with server(trial) as here:
        headers = {"Authorization": f"Bearer {here.token('claude')}"}
        entry = {"type": "http", "url": f"{here.url}/mcp", "headers": headers}
        session = claude.Session(trial, "server", *STEPS, server=entry)
    judged(trial, "claude, at the server", session.results)


def codex_at_the_server(trial: Trial) -> None:
    """The same."""
    with server(trial) as here:
        entry = {"url": f"{here.url}/mcp", "bearer_token_env_var": "CONFIDE_TOKEN"}
        session = codex.Session(trial, *STEPS, server=entry, CONFIDE_TOKEN=here.token("codex"))
    judged(trial, "codex, at the server", session.read)


def claude_signs_in(trial: Trial) -> None:
    """It registers itself while that is open, opens a page, and is let in once the device has approved its words."""
    with server(trial) as here:
        program = str(trial.clients / claude.PROGRAM)
        environment = trial.environment("claude-signing-in", **dict.fromkeys(claude.QUIET, "1"))
        _told(trial, environment, program, "mcp", "add", "--transport", "http", "confide", f"{here.url}/mcp")
        opened = subprocess.Popen(
            [str(BIN / "confided"), "gateway", "open", "--space", "ann"],
            env=here.operator,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            assert opened.stdout is not None
            next(line for line in opened.stdout if "may register themselves" in line)
            said = _login(trial, here, environment, [program, "mcp", "login", "confide", "--no-browser"])
        finally:
            opened.kill()
            opened.wait()
        listed = _told(trial, environment, program, "mcp", "list")
        trial.check("claude, signed in: connected", "Connected" in listed, listed.strip().splitlines()[-1][-60:])
        entry = {"type": "http", "url": f"{here.url}/mcp"}
        session = claude.Session(trial, "signed-in", *STEPS, server=entry, home="claude-signing-in")
        judged(trial, "claude, signed in", session.results)
        (client,) = here.confided("gateway", "ls", "--json")
        trial.check("claude, signed in: it is a caller of the space", client["space"] == "ann", client["name"])
        secrets = ("cfd_" in said, client["trusted"])
        trial.check("claude, signed in: no token on the terminal, and untrusted", secrets == (False, False))


def _login(trial: Trial, here: Server, environment: Mapping[str, str], command: list[str]) -> str:
    """Sign in, as a person at a terminal does with a browser beside it; what the terminal showed."""
    main, other = pty.openpty()
    process = subprocess.Popen(command, cwd=trial.project, env=environment, stdin=other, stdout=other, stderr=other)
    os.close(other)
    said, is_followed, ends = "", False, time.monotonic() + SESSION_S
    try:
        while time.monotonic() < ends and process.poll() is None:
            if not select.select([main], [], [], 0.2)[0]:
                continue
            try:
                said += os.read(main, 65536).decode("utf-8", "replace")
            except OSError:  # the other end is closed
                break
            bare = re.sub(r"\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b\[[0-9;?]*[A-Za-z]|[\r\n]", "", said)
            asked = re.search(rf"{re.escape(here.url)}/authorize\?[!-~]*?resource=[A-Za-z0-9%._-]*mcp", bare)
            if asked and not is_followed:
                is_followed = True
                back = _browse(here, asked.group())
                os.write(main, back.encode() + b"\r")
        return said
    finally:
        process.kill()
        process.wait()
        os.close(main)


def _browse(here: Server, address: str) -> str:
    """What a browser does with that address, and the person at it: where it is sent in the end."""
    page = _visit(here, address.removeprefix(here.url)).headers["location"]
    words = re.search(r"confide http approve ([a-z-]+)", _visit(here, page).body)
    assert words is not None
    here.approve(words[1])
    return _visit(here, page).headers["location"]


@dataclass(frozen=True)
class Visited:
    headers: Mapping[str, str]
    body: str


def _visit(here: Server, path: str) -> Visited:
    connection = http.client.HTTPConnection(urlsplit(here.url).netloc, timeout=SESSION_S)
    try:
        connection.request("GET", path, headers=NAVIGATION)
        answer = connection.getresponse()
        return Visited({name.lower(): value for name, value in answer.getheaders()}, answer.read().decode())
    finally:
        connection.close()


def _must(trial: Trial, environment: Mapping[str, str], program: str, *words: str) -> str:
    return _told(trial, environment, str(BIN / program), *words)


def _told(trial: Trial, environment: Mapping[str, str], *command: str) -> str:
    done = trial.run(command, dict(environment))
    if done.returncode:
        raise RuntimeError(f"{command[1:3]} ended with {done.returncode}: {done.stderr[-500:]}")
    return str(done.stdout)


AT_THE_SERVER: Final[dict[str, tuple[Callable[[Trial], None], ...]]] = {
    "claude": (claude_at_the_server, claude_signs_in),
    "codex": (codex_at_the_server,),
}
