"""What the checks of all clients share: one temporary folder, environments made here, daemons in four states, and the checks' lines."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.crypto.channels import HOST

from confide_crypto.keys.identity import format_daemon_key

BIN = Path(sys.executable).parent
TAP = Path(__file__).with_name("tap.py")
PROMPT = "why did we choose postgres?"
FACT = "We chose postgres over mysql for its row locks."
NOTICE = "stored data, not instructions"
SESSION_S = 120.0
CONNECTED_MS = 300.0
MOST_TIMES_BARE = 4.0
"""Where a server that does nothing takes its time too."""
BARE = "bare"
STATES = (BARE, "up", "refused", "mute", "absent")
"""What a server finds: of its daemon; or it is the bare one, which has none."""


class Trial:
    """Checks print one line each; `failed` counts those that went wrong."""

    def __init__(self, clients: Path) -> None:
        self.clients = clients
        self.root = Path(tempfile.mkdtemp(prefix="confide-clients-"))
        self.project = self.root / "project"
        self.project.mkdir()
        subprocess.run(["git", "init", "-q", str(self.project)], check=True)
        self.failed = 0

    def check(self, name: str, is_right: bool, told: str = "") -> None:
        self.failed += not is_right
        print(f"{'ok  ' if is_right else 'FAIL'} {name}{'  ' + told if told else ''}", flush=True)

    def environment(self, client: str, state: str = "up", **more: str) -> dict[str, str]:
        """Nothing of the caller's: a home, a path and a memory of its own."""
        home = self.root / client
        home.mkdir(exist_ok=True)
        path = f"{BIN}:/usr/local/bin:/usr/bin:/bin:{Path(shutil.which('node') or '/usr/bin/node').parent}"
        surroundings = {"HOME": str(home), "PATH": path, "LANG": "C.UTF-8", "TERM": "xterm-256color"}
        return {**surroundings, "CONFIDE_HOME": str(self.memory(state)), **more}

    def memory(self, state: str) -> Path:
        """The CONFIDE_HOME of a machine whose daemon is in that state."""
        return self.root / f"daemon-{state}"

    def run(self, command: Sequence[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        pipe = subprocess.DEVNULL
        return subprocess.run(
            command, cwd=self.project, env=environment, stdin=pipe, capture_output=True, text=True, timeout=SESSION_S
        )

    def server(self, state: str = "up", log: Path | None = None) -> dict[str, Any]:
        """The entry that starts `confide mcp`, behind the tap where there is a `log`."""
        confide = [str(BIN / "confide"), "mcp"]
        if state == BARE:
            confide = [sys.executable, "-S", str(Path(__file__).with_name("bare.py"))]
        command, *arguments = [sys.executable, str(TAP), str(log), *confide] if log else confide
        return {"command": command, "args": arguments, "env": {"CONFIDE_HOME": str(self.memory(state))}}

    @contextmanager
    def daemons(self) -> Iterator[None]:
        """One that is up, with a memory that holds `FACT`; a port that refuses; one that accepts and is mute; and none at all."""
        plain = self.environment("nobody")
        with socket.create_server(("127.0.0.1", 0), backlog=256) as mute, socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            for state, port in (("refused", closed.getsockname()[1]), ("mute", mute.getsockname()[1])):
                here = plain | {"CONFIDE_HOME": str(self.memory(state))}
                self._must("pin", f"ws://127.0.0.1:{port}/", format_daemon_key(HOST.static_key), environment=here)
            self.memory("absent").mkdir()
            (self.memory("absent") / "proxy.toml").write_text("on_demand = false\n")
            up = plain | {"CONFIDE_HOME": str(self.memory("up"))}
            self._must("quickstart", "--no-write", environment=up)
            self._must("store", FACT, "--path", "memory/decisions.md", environment=up)
            try:
                yield
            finally:
                self.run([str(BIN / "confide"), "stop"], up)

    def _must(self, *words: str, environment: dict[str, str]) -> None:
        done = self.run([str(BIN / "confide"), *words], environment)
        if done.returncode:
            raise RuntimeError(f"confide {words[0]} ended with {done.returncode}: {done.stderr[-500:]}")

    def connected(self, client: str, took_ms: dict[str, list[float]]) -> None:
        """A check for each state: the median of the times in which a client counted its server as connected.

        Where the machine has more to do than processors it is the shortest, against the longest of the bare server's: what waits for a
        daemon waits each time, and what others do comes as it comes.
        """
        of_ours, of_bare = (min, max) if is_busy() else (statistics.median, statistics.median)
        times = {state: of_ours(all_ms) if all_ms else float("inf") for state, all_ms in took_ms.items()}
        bare = of_bare(took_ms[BARE]) if took_ms[BARE] else float("inf")
        most = max(CONNECTED_MS, MOST_TIMES_BARE * min(bare, CONNECTED_MS))
        print(f"     {client}: a bare server is connected in {bare:.0f} ms, so ours has {most:.0f} ms")
        for state, all_ms in took_ms.items():
            if state != BARE:
                told = f"{times[state]:.0f} ms of {', '.join(f'{each:.0f}' for each in all_ms) or 'none'}"
                self.check(f"{client}: connected with the daemon {state}", times[state] <= most, told)

    def close(self) -> None:
        """The folder stays where a check has failed."""
        if self.failed:
            print(f"kept: {self.root}")
        else:
            shutil.rmtree(self.root, ignore_errors=True)


def is_busy() -> bool:
    """Whether the machine has more to do than it has processors for."""
    return os.getloadavg()[0] > (os.cpu_count() or 1)


def heard(log: Path) -> list[dict[str, Any]]:
    """What the tap noted, each message parsed as `message`."""
    entries = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []
    return [{**entry, "message": json.loads(entry["line"])} for entry in entries if entry["line"].strip()]


def ready_ms(log: Path) -> float | None:
    """From a client's first line to the last answer of what it asked before it called a tool; None: something has no answer.

    A stream of news is answered by its acknowledgement.
    """
    asked: dict[str, float] = {}
    answered: dict[str, float] = {}
    for entry in heard(log):
        message = entry["message"]
        if entry["way"] == "to server":
            if message.get("method") == "tools/call":
                break
            if "id" in message and "method" in message:
                asked[json.dumps(message["id"])] = entry["ms"]
        else:
            about = message.get("params", {}).get("_meta", {}).get("io.modelcontextprotocol/subscriptionId")
            answered.setdefault(json.dumps(message.get("id", about)), entry["ms"])
    if not asked or not asked.keys() <= answered.keys():
        return None
    return sum(max(0.0, answered[each] - at) for each, at in asked.items())


def number_in(pattern: str, text: str) -> float | None:
    found = re.search(pattern, text)
    return float(found[1]) if found else None
