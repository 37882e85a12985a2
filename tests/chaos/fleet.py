"""Machines with real proxies, each behind a cable of its own, and one real daemon: what a schedule is carried out on."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.network.relay import RecordingRelay
from tests.support.programs.processes import NO_MODEL, SERVER_KEEPS, Daemon, Machine, running_daemon, wait_until
from tests.support.programs.wall_clock import COMPILER, WallClock
from tests.support.programs.wire import Wire

from confide_crypto.errors import DeniedError
from confide_crypto.keys.identity import Identity
from confide_crypto.transport.open import connect
from confide_daemon.access.callers import Grants
from confide_daemon.access.registry import open_state
from confide_daemon.datadir.credentials import MasterKey
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.store.store import Store
from confide_daemon.store.tables.vector_scan import VectorScan

CONVERGED_WITHIN_S = 40.0
CALL_S = 12.0
"""A little more than what the proxy allows itself for a call."""


def wall_clock(folder: Path, name: str, env: dict[str, str]) -> WallClock | None:
    """A clock for the processes that are started with `env`, where one can be had."""
    if COMPILER is None:
        return None
    clock = WallClock(folder, name)
    env.update(clock.env)
    return clock


class Place:
    """One machine: its project folder, its cable, and its agent's session while there is one."""

    def __init__(self, root: Path, name: str, daemon: Daemon, *space: str) -> None:
        self.machine = Machine(root, name)
        self.clock = wall_clock(root, name, self.machine.env)
        self.cable = RecordingRelay(daemon.port)
        self.machine.run("join", daemon.invite(name, *space, port=self.cable.port))
        self.wire: Wire | None = None

    def enter(self, project: str) -> None:
        """Work in another project, empty as yet, with a session of its own."""
        self.machine.project = self.machine.project.parent / project
        (self.machine.project / "memory").mkdir(parents=True)
        self.machine.allow(project)
        self.start()

    def start(self) -> None:
        """Have a session."""
        if self.wire is None:
            self.wire = Wire(self.machine)
            self.wire.open()

    def kill(self) -> None:
        """kill -9 the proxy."""
        if self.wire is not None:
            self.wire.process.kill()
            self._leave()

    def end(self) -> None:
        """Close the proxy's stdin, as a client does that ends."""
        if self.wire is not None:
            self._leave()

    def _leave(self) -> None:
        assert self.wire is not None
        with suppress(BrokenPipeError):
            self.wire.__exit__(None, None, None)
        self.wire = None

    def store(self, path: str, text: str, mode: str) -> bool:
        """Let the agent store something; whether it was told that it is kept."""
        if self.wire is None:
            return False
        try:
            result = self.wire.tool("memory_store", {"path": path, "content": text, "mode": mode}, timeout_s=CALL_S)
        except (queue.Empty, KeyError):
            return False
        return not result.get("isError")

    def waiting(self) -> dict[str, Any]:
        """What was said or saved here and still waits to be sent, as the status counts it."""
        assert self.wire is not None
        try:
            told = self.wire.tool("memory_status", {}, timeout_s=CALL_S).get("structuredContent", {})
        except (queue.Empty, KeyError):
            return {"status": "none"}
        return {name: told.get(name) for name in ("queuedOffline", "deadLetters", "pendingUploads")}

    def heard(self) -> str:
        """What the proxy has written to stderr."""
        assert self.wire is not None
        assert self.wire.process.stderr is not None
        os.set_blocking(self.wire.process.stderr.fileno(), False)
        return (self.wire.process.stderr.read() or b"").decode()

    def files(self) -> dict[str, str]:
        """Every memory file by its path."""
        root = self.machine.project
        found = {}
        for file in root.rglob("*.md"):
            with suppress(FileNotFoundError):
                found[file.relative_to(root).as_posix()] = file.read_bytes().decode()
        return found


class Fleet:
    """One space, its daemon and its machines."""

    def __init__(self, root: Path, daemon: Daemon, names: list[str]) -> None:
        self.daemon = daemon
        self.clock = wall_clock(root, "daemon", daemon.env)  # from the next start on
        self.copy = root / "copy"
        first, *others = names
        self.space = first
        self.places = [Place(root, first, daemon)]
        self.places += [Place(root, name, daemon, "--space", first) for name in others]
        self.is_up = True

    def kill_daemon(self) -> None:
        """kill -9."""
        if self.is_up:
            self.daemon.kill()
            self.is_up = False

    def start_daemon(self) -> None:
        """Have a daemon."""
        if not self.is_up:
            self.daemon.start()
            self.is_up = True

    def copy_data(self) -> None:
        """Copy the data folder as a disk's snapshot does, at one moment, whatever the daemon is writing."""
        shutil.rmtree(self.copy, ignore_errors=True)
        if self.is_up:
            self.daemon.signal(signal.SIGSTOP)
        try:
            shutil.copytree(self.daemon.data, self.copy)
        finally:
            if self.is_up:
                self.daemon.signal(signal.SIGCONT)

    def put_back(self) -> None:
        """kill -9 the daemon, and start it on the copy."""
        self.kill_daemon()
        shutil.rmtree(self.daemon.data)
        shutil.copytree(self.copy, self.daemon.data)
        self.start_daemon()

    def enroll(self, name: str) -> Identity:
        """The key of another machine of the space, which may connect."""
        identity = Identity.generate()
        state = open_state(DataFolder(self.daemon.data))
        try:
            state.registry.add_caller(identity.public_key, Grants(name), space=self.space, added_by="line")
        finally:
            state.close()
        return identity

    def lets_in(self, identity: Identity) -> bool:
        """Whether the daemon, which is up, takes a connection with this key."""
        url = json.loads((self.daemon.data / "daemon.address").read_bytes())["url"]
        state = open_state(DataFolder(self.daemon.data))
        static_key = state.identity.static_key
        state.close()

        async def knock() -> bool:
            try:
                connection = await connect(url, identity, static_key)
            except DeniedError:
                return False
            await connection.close()
            return True

        return asyncio.run(knock())

    def settle(self, project: str) -> dict[str, str]:
        """Mend everything and wait until all machines and the daemon have the same documents; those.

        They have to be so twice, a moment apart: what is still on its way shows up between.
        """
        self.start_daemon()
        for place in self.places:
            place.cable.mend()
            place.start()
        agreed: dict[str, str] | None = None

        def same() -> bool:
            nonlocal agreed
            is_through = not any(value for place in self.places for value in place.waiting().values())
            states = [place.files() for place in self.places]
            states.append(self.documents(project))
            if not is_through or any(state != states[0] for state in states):
                agreed = None
                time.sleep(0.1)
                return False
            is_steady = agreed == states[0]
            agreed = states[0]
            if not is_steady:
                time.sleep(0.4)
            return is_steady

        try:
            wait_until("all to have the same files", same, CONVERGED_WITHIN_S)
        except AssertionError:
            raise AssertionError("no agreement:\n" + "\n".join(self._differences(project))) from None
        assert agreed is not None
        return agreed

    def _differences(self, project: str) -> list[str]:
        documents = self.documents(project)
        lines = []
        for place in self.places:
            files = place.files()
            for path in sorted(files.keys() | documents.keys()):
                here, there = files.get(path), documents.get(path)
                if here != there:
                    lines.append(f"{place.machine.name} has {path} as {here!r}, the daemon as {there!r}")
            lines.append(f"{place.machine.name} waits with {place.waiting()} and said: {place.heard()}")
        return lines

    def documents(self, project: str) -> dict[str, str]:
        """What the daemon holds now, by path."""
        texts = self._texts(self.daemon.data, project)
        return {path: each[-1] for path, each in texts.items() if each[-1] is not None}

    def history(self, project: str, data: Path | None = None) -> str:
        """Every text that the daemon ever kept of the project, one after the other; `data`: as a copy of its folder has it."""
        texts = self._texts(data or self.daemon.data, project)
        return "\n".join(text for each in texts.values() for text in each if text is not None)

    def _texts(self, data: Path, project: str) -> dict[str, list[str | None]]:
        folder = DataFolder(data)
        (file,) = [path for path in folder.spaces.iterdir() if path.suffix == ".db"]
        key = MasterKey.load(folder.master).space_key(file.stem)
        store = Store.open(file, key, writer=False, now=time.time(), scan=VectorScan())
        try:
            with store.reading():
                found: dict[str, list[str | None]] = {}
                for row in store.documents.listed(frozenset((project,))):
                    numbers = [entry.number for entry in store.documents.revisions(row.id, limit=10_000)]
                    revisions = [store.documents.revision(row.id, number) for number in reversed(numbers)]
                    found[row.path] = [revision.text for revision in revisions if revision is not None]
                return found
        finally:
            store.close()


@contextmanager
def fleet(root: Path, names: list[str]) -> Iterator[Fleet]:
    """A daemon and its machines; all of them end with the block. Its revocations are kept beside its data folder."""
    beside, settings = root / "beside", root / "server-home" / "daemon.toml"
    beside.mkdir()
    settings.parent.mkdir()
    settings.write_text(f'{NO_MODEL}{SERVER_KEEPS}[backup]\nrevoked = "{beside}"\n')
    with running_daemon(root) as daemon:
        made = Fleet(root, daemon, names)
        made.kill_daemon()  # its next life has the clock that jumps
        made.start_daemon()
        try:
            yield made
        finally:
            for place in made.places:
                place.kill()
                place.cable.__exit__(None, None, None)
