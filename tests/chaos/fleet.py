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

from tests.chaos.book import IS_LONG
from tests.chaos.cables import Cable
from tests.support.deadline import DEADLINE_S
from tests.support.programs.processes import NO_MODEL, SERVER_KEEPS, Daemon, Machine, running_daemon, wait_until
from tests.support.programs.wall_clock import COMPILER, WallClock
from tests.support.programs.wire import Wire

from confide_crypto.errors import DeniedError
from confide_crypto.keys.identity import Identity
from confide_crypto.transport.open_channel import connect
from confide_daemon.access.enrolled_callers import Grants
from confide_daemon.access.registry import open_state
from confide_daemon.datadir.credentials import MasterKey
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.vector_scan import VectorScan
from confide_memory.documents import to_nfc

CONVERGED_WITHIN_S = 30.0 if IS_LONG else DEADLINE_S
"""Of peace, once all have answered. In the suite, where other tests keep the machine busy, what comes late is late, and what never comes is
told by a comparison each five minutes alone."""
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

    def __init__(self, root: Path, name: str, daemon: Daemon, *space: str, may_jump: bool) -> None:
        self.machine = Machine(root, name)
        self.clock = wall_clock(root, name, self.machine.env) if may_jump else None
        self.cable = Cable(daemon.port)
        self.machine.run("join", daemon.invite(name, *space, port=self.cable.port))
        self.wire: Wire | None = None
        self.second: Wire | None = None
        """Another agent's session in the same folder."""

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
        wire, self.wire = self.wire, None
        _leave(wire, is_killed=True)

    def end(self) -> None:
        """Close the proxy's stdin, as a client does that ends."""
        wire, self.wire = self.wire, None
        _leave(wire)

    def start_second(self) -> None:
        """Have a second session."""
        if self.second is None:
            self.second = Wire(self.machine)
            self.second.open()

    def end_second(self, *, is_killed: bool = False) -> None:
        """End it."""
        wire, self.second = self.second, None
        _leave(wire, is_killed=is_killed)

    def freeze(self, seconds: float) -> None:
        """Let the proxy stand still for so long."""
        wire = self.wire
        if wire is not None:
            wire.process.send_signal(signal.SIGSTOP)
            time.sleep(seconds)
            wire.process.send_signal(signal.SIGCONT)

    def store(self, path: str, text: str, mode: str, *, is_second: bool = False) -> bool:
        """Let the agent store something; whether it was told that it is kept. `is_second`: over the second session, if there is one."""
        wire = (self.second if is_second else None) or self.wire
        if wire is None:
            return False
        try:
            result = wire.tool("memory_store", {"path": path, "content": text, "mode": mode}, timeout_s=CALL_S)
        except (queue.Empty, KeyError, AssertionError, OSError, ValueError):
            return False  # no answer, or the session has ended meanwhile
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
        """Every memory file by its path, as documents are named."""
        return {to_nfc(path): text for path, text in reversed(self._found())}

    def apart(self) -> str:
        """What is in files that are no documents, since their name is another one's, spelled otherwise."""
        found = self._found()
        paths = {path for path, _ in found}
        return "\n".join(text for path, text in found if path != to_nfc(path) and to_nfc(path) in paths)

    def _found(self) -> list[tuple[str, str]]:
        root = self.machine.project
        found = []
        for file in root.rglob("*.md"):
            with suppress(OSError):
                if file.is_file() and not file.is_symlink():
                    found.append((file.relative_to(root).as_posix(), file.read_bytes().decode()))
        return sorted(found, key=lambda one: one[0] != to_nfc(one[0]))


class Fleet:
    """One space, its daemon and its machines."""

    def __init__(self, root: Path, daemon: Daemon, names: list[str], *, may_jump: bool) -> None:
        self.daemon = daemon
        self.clock = wall_clock(root, "daemon", daemon.env) if may_jump else None  # from the next start on
        self.copy = root / "copy"
        first, *others = names
        self.space = first
        self.places = [Place(root, first, daemon, may_jump=may_jump)]
        self.places += [Place(root, name, daemon, "--space", first, may_jump=may_jump) for name in others]
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

    def freeze_daemon(self, seconds: float) -> None:
        """Let the daemon stand still for so long."""
        if self.is_up:
            self.daemon.signal(signal.SIGSTOP)
            time.sleep(seconds)
            self.daemon.signal(signal.SIGCONT)

    def copy_data(self) -> None:
        """Copy the data folder as a disk's snapshot does, at one moment, whatever the daemon is writing."""
        shutil.rmtree(self.copy, ignore_errors=True)
        if self.is_up:
            self.daemon.signal(signal.SIGSTOP)
        try:
            shutil.copytree(self.daemon.data, self.copy, ignore=shutil.ignore_patterns("*.sock"))
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
        """The key of another device of the space, which may connect."""
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
        for place in self.places:
            wait_until("a session to answer", lambda place=place: "status" not in place.waiting())
        agreed: dict[str, str] | None = None

        def same() -> bool:
            nonlocal agreed
            is_through = not any(value for place in self.places for value in place.waiting().values())
            states = [place.files() for place in self.places]
            if not is_through or any(state != states[0] for state in states) or states[0] != self.documents(project):
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

    def apart(self) -> str:
        """What is in files of one machine alone, by their names."""
        return "\n".join(place.apart() for place in self.places)

    def end(self) -> None:
        """End all sessions."""
        for place in self.places:
            place.end_second()
            place.end()

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
                for row in store.documents.list_documents(frozenset((project,))):
                    numbers = [entry.number for entry in store.documents.revisions(row.id, limit=10_000)]
                    revisions = [store.documents.revision(row.id, number) for number in reversed(numbers)]
                    found[row.path] = [revision.text for revision in revisions if revision is not None]
                return found
        finally:
            store.close()


@contextmanager
def fleet(root: Path, names: list[str], *, may_jump: bool = IS_LONG) -> Iterator[Fleet]:
    """A daemon and its machines; all of them end with the block. Its revocations are kept beside its data folder.

    `may_jump`: their clocks can be set. Such a program cannot be forked, and so costs a second of a processor at each start.
    """
    beside, settings = root / "beside", root / "server-home" / "daemon.toml"
    beside.mkdir()
    settings.parent.mkdir()
    settings.write_text(f'{NO_MODEL}{SERVER_KEEPS}[backup]\nrevoked = "{beside}"\n')
    with running_daemon(root) as daemon:
        made = Fleet(root, daemon, names, may_jump=may_jump)
        if may_jump:
            made.kill_daemon()  # its next life has the clock that jumps
            made.start_daemon()
        try:
            yield made
        finally:
            for place in made.places:
                place.end_second(is_killed=True)
                place.kill()
                place.cable.close()


def _leave(wire: Wire | None, *, is_killed: bool = False) -> None:
    if wire is not None:
        if is_killed:
            wire.process.kill()
        with suppress(BrokenPipeError):
            wire.__exit__(None, None, None)
