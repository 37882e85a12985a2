"""The program `confided` on a home of its own: what an operator runs, and machines that connect to it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.support.daemon.loopback import Machine
from tests.support.deadline import DEADLINE_S
from tests.support.programs.forked import SURROUNDINGS, Program, run
from tests.support.programs.processes import COMMAND_DEADLINE_S, CONFIDED, NO_MODEL, SERVER_KEEPS, wait_until

from confide_crypto.handshake.invite import Invite
from confide_crypto.keys.identity import Identity, format_public_key, parse_daemon_key
from confide_crypto.transport.open_channel import connect


class Confided:
    """`confided` on one CONFIDE_HOME."""

    program = CONFIDED

    def __init__(self, home: Path) -> None:
        home.mkdir()
        self.home = home
        self.data = home / "daemon"
        self.env = {
            **{key: value for key, value in os.environ.items() if not key.startswith("CONFIDE")},
            "CONFIDE_HOME": str(home),
            **SURROUNDINGS,
        }
        (home / "daemon.toml").write_text(NO_MODEL + SERVER_KEEPS)
        self.processes: list[subprocess.Popen[str]] = []

    def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a command; its exit code must be `code`."""
        done = run([self.program, *arguments], env=self.env, timeout=COMMAND_DEADLINE_S)
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Run a command with --json."""
        return json.loads(self.run(*arguments, "--json", code=code).stdout)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a process whose stderr goes to a file."""
        with (self.home / "log").open("a") as log:
            process = Program(
                [self.program, *arguments],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.processes.append(process)
        return process

    def serve(self, *arguments: str) -> subprocess.Popen[str]:
        """Serve on a free port; returns once it listens."""
        process = self.start("serve", *(arguments or ("--listen", "127.0.0.1:0")))
        wait_until("the daemon to listen", lambda: self._listens(process))
        return process

    def _listens(self, process: subprocess.Popen[str]) -> bool:
        assert process.poll() is None, self.log
        return self.address is not None and self.address["pid"] == process.pid

    @property
    def address(self) -> dict[str, Any] | None:
        """What daemon.address holds."""
        try:
            found: dict[str, Any] = json.loads((self.data / "daemon.address").read_text())
        except (OSError, ValueError):
            return None
        return found

    @property
    def log(self) -> str:
        """What all processes have logged."""
        return (self.home / "log").read_text()

    def end(self) -> None:
        """End what still runs."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait(DEADLINE_S)
            if process.stdout is not None:
                process.stdout.close()

    async def connect(self, identity: Identity, *, invite: Invite | None = None) -> Machine:
        """A machine connected to the running daemon."""
        assert self.address is not None
        static = parse_daemon_key(self.address["key"])
        return Machine(await connect(self.address["url"], identity, static, invite=invite))

    def enroll(self, name: str = "laptop", *options: str) -> Identity:
        """An identity whose key line was added."""
        identity = Identity.generate()
        self.run("device", "add", format_public_key(identity.public_key, name), *options)
        return identity
