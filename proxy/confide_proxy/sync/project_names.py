"""Decide which folder of this device gets which project's name, and store the decisions.

A repository's author writes its `.confide.toml`, and an archive's author chooses the folder's name.
If Confide trusted such names, a clone could claim the name of another project, get its memory
written into the clone's files, and add texts to that project's memory. So Confide does as direnv
and editors do. If a new folder claims a name that another folder, device or remote has, it becomes
a project of its own, `name~hash`, until a user runs `confide project allow`.

A name from the remote of its repository is trusted: git wrote that when the user cloned it. An
attacker who can place a whole `.git` on this device (in an archive) can run programs at the next
`git status`, and does not need the memory.

Decisions are in a private file of this device, one line of JSON each; the newest about a folder and
a name counts.
"""

from __future__ import annotations

import asyncio
import enum
import hashlib
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple, Self

from confide_crypto import portable
from confide_crypto.errors import ConfideError, KeyFileError, RequestError, printable
from confide_crypto.keys.private_files import cannot, make_private_dir, read_private_file, write_private_file
from confide_memory.documents import GLOBAL_PROJECT, RequestChannel
from confide_memory.errors import UnfitAnswerError
from confide_memory.wire.files import PULL, PullRequest
from confide_memory.wire.revisions import PROJECTS
from confide_memory.wire.session import ATTACH
from confide_proxy.config import ProxyConfig
from confide_proxy.link.daemon_link import attach
from confide_proxy.locks import lock_file, try_lock
from confide_proxy.paths import ProxyPaths
from confide_proxy.sync.ledger import SyncLedger
from confide_proxy.sync.project import Basis, Claim, Project

DEADLINE_S: Final = 6.0
"""Seconds for the daemon's response when a folder is new: less than an agent's first call waits for
the link.
"""
START_DEADLINE_S: Final = 20.0
"""The same deadline if the daemon has to be started first."""
_REQUEST_S: Final = 10.0
MOST_BYTES: Final = 1024 * 1024
COMPACT_BYTES: Final = 512 * 1024
KEPT_BYTES: Final = 128 * 1024
"""Bytes of decisions that stay when the file is written again, and as much again of decisions by
users.
"""
_LOCK_S: Final = 2.0
_LOOKED_AT: Final = 4


class NameOrigin(enum.Enum):
    """The reason why a folder has its project name, or was refused it."""

    REMOTE = "remote"
    """The name is the remote of its repository."""
    FIRST = "first"
    """The name was free."""
    USED = "used"
    """The folder had the name before decisions were recorded: the daemon has the revisions in this
    device's ledger.
    """
    ALLOWED = "allowed"
    """A user allowed the name."""
    OWN = "own"
    """The name is taken, so the folder is a project of its own."""
    UNASKED = "unasked"
    """The folder is a project of its own until the daemon can be asked."""
    FORGOTTEN = "forgotten"
    """The decision was withdrawn, and is made again."""


_BELIEVED: Final = frozenset({NameOrigin.REMOTE, NameOrigin.FIRST, NameOrigin.USED, NameOrigin.ALLOWED})
_FINAL: Final = _BELIEVED | {NameOrigin.OWN}


class ClaimOutcome(NamedTuple):
    """The decision about the project name that a folder claims.

    Attributes:
        home: the folder.
        claim: the name that the folder claims.
        mark: the suffix that makes the name unique if the claim is refused. It is stored, since the
            host name from which it is made may change.
    """

    home: str
    claim: str
    state: NameOrigin
    mark: str

    @classmethod
    def of(cls, claim: Claim, state: NameOrigin) -> Self:
        """Return a new decision about a claim. Its suffix differs between devices, so that hostile
        folders with the same path on two devices share nothing.
        """
        home = os.fspath(claim.home)
        seed = f"{socket.gethostname()}\0{home}".encode(errors="surrogateescape")
        return cls(home, claim.name, state, hashlib.blake2b(seed, digest_size=4).hexdigest())

    @property
    def name(self) -> str:
        """Return the project name that follows from the decision: the claimed one, or that with the
        suffix.
        """
        return self.claim if self.state in _BELIEVED else f"{self.claim}~{self.mark}"

    def project(self, claim: Claim) -> Project:
        """Return the claiming folder's project, under the name that follows from the decision."""
        return claim.grant() if self.state in _BELIEVED else claim.separate_project(self.name)

    def line(self) -> bytes:
        """Return the decision as a line of the file."""
        return json.dumps([self.home, self.claim, self.state.value, self.mark]).encode() + b"\n"


class ProjectNames:
    """The decisions of this device about project names, in the private file `file`. Methods access
    the disk briefly.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def all(self) -> list[ClaimOutcome]:
        """Return the valid decisions, oldest first. Raises KeyFileError if other users could have
        written the file, or if it cannot be read.
        """
        try:
            data = read_private_file(self._file, most_bytes=MOST_BYTES) if self._file.exists() else b""
        except FileNotFoundError:
            data = b""
        found: dict[tuple[str, str], ClaimOutcome] = {}
        for line in data.splitlines():
            if (decision := _parse(line)) is not None:
                key = (decision.home, decision.claim)
                found.pop(key, None)
                found[key] = decision
        return list(found.values())

    def about(self, claim: Claim) -> ClaimOutcome | None:
        """Return the decision about a folder and the name that it claims; None if there is none
        yet.
        """
        key = (os.fspath(claim.home), claim.name)
        return next((each for each in self.all() if (each.home, each.claim) == key), None)

    def is_known(self, claim: Claim) -> bool:
        """Return True if there is a decision about the claim's folder, under any name."""
        home = os.fspath(claim.home)
        return any(each.home == home and each.state is not NameOrigin.UNASKED for each in self.all())

    def earlier_name(self, claim: Claim) -> str:
        """Return the project's name that the claim's folder had last under another claim; "" if it
        had none.
        """
        home = os.fspath(claim.home)
        found = [each for each in self.all() if each.home == home and each.claim != claim.name]
        return next((each.name for each in reversed(found) if each.state in _FINAL), "")

    def is_held(self, claim: Claim) -> bool:
        """Return True if another folder of this device has the claimed name."""
        home = os.fspath(claim.home)
        return any(each.claim == claim.name and each.home != home and each.state in _BELIEVED for each in self.all())

    def note(self, claim: Claim, state: NameOrigin) -> ClaimOutcome:
        """Store a decision about a claim. The name is refused if another folder of this device has
        got it in the meantime.

        Raises KeyFileError if the file cannot be written.
        """
        with self._alone():
            if state is NameOrigin.FIRST and self.is_held(claim):
                state = NameOrigin.OWN
            before = self.about(claim)
            decision = before._replace(state=state) if before else ClaimOutcome.of(claim, state)
            self._append(decision)
        return decision

    def forget(self, home: Path) -> list[ClaimOutcome]:
        """Delete all decisions about a folder, and return them. Raises KeyFileError if the file
        cannot be read or written.
        """
        if not self._file.exists():
            return []
        with self._alone():
            found = [
                each for each in self.all() if each.home == os.fspath(home) and each.state is not NameOrigin.FORGOTTEN
            ]
            for each in found:
                self._append(each._replace(state=NameOrigin.FORGOTTEN))
        return found

    def on_joined(self) -> None:
        """Delete the decisions that depend on the daemon, because this device has joined another
        daemon. Raises KeyFileError if the file cannot be read or written.
        """
        if self._file.exists():
            with self._alone():
                kept = [each for each in self.all() if each.state not in (NameOrigin.FIRST, NameOrigin.USED)]
                write_private_file(self._file, b"".join(each.line() for each in kept), replace=True)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        make_private_dir(self._file.parent)
        try:
            fd = lock_file(self._file.with_suffix(".lock"))
        except OSError as error:
            raise cannot(self._file, "be written", error) from error
        try:
            with suppress(OSError):  # a file system without locks
                try_lock(fd, wait_s=_LOCK_S)
            yield
        finally:
            os.close(fd)

    def _append(self, decision: ClaimOutcome) -> None:
        try:
            fd = os.open(self._file, os.O_RDWR | os.O_APPEND | os.O_CREAT | portable.CLOSED | portable.NO_LINK, 0o600)
            try:
                size = os.fstat(fd).st_size
                is_torn = size > 0 and portable.read_at(fd, 1, size - 1) != b"\n"
                os.write(fd, b"\n" * is_torn + decision.line())
            finally:
                os.close(fd)
        except OSError as error:
            raise cannot(self._file, "be written", error) from error
        if size > COMPACT_BYTES:
            write_private_file(
                self._file, b"".join(each.line() for each in _newest_decisions(self.all())), replace=True
            )


class Named(NamedTuple):
    """A project with the name that it has on this device.

    Attributes:
        is_new: True if the name was decided just now.
        earlier: the name that the folder had before; "" if it had none, or if the name is not new.
    """

    project: Project
    is_new: bool = False
    earlier: str = ""

    @property
    def notice(self) -> str:
        """Return the message for the user about a project's new name."""
        project = self.project
        if not project.claim:
            changed = f", and was {self.earlier}; devices whose clone has the old name or remote still use that one"
            return f"{printable(str(project.root))} is the project {project.name}{changed if self.earlier else ''}"
        return (
            f"{printable(str(project.root))} calls itself {project.claim}. If it is the project of that name in this space, run: "
            f"confide project allow. Until then it is separate, as {project.name}"
        )


async def resolve_project(paths: ProxyPaths, config: ProxyConfig, claim: Claim) -> Named:
    """Return the project of a folder under its name on this device. If the folder claims the name
    for the first time, ask the daemon if the name is taken.

    Raises KeyFileError if other users could have written the stored decisions.
    """
    names = ProjectNames(paths.projects)
    before = await asyncio.to_thread(_final_decision, names, claim, paths.journal)
    if before is not None:
        return Named(before.project(claim))
    if claim.basis is Basis.REMOTE:
        return await _note_decision(names, claim, NameOrigin.REMOTE)
    # Imported late: nearly every start is in a known folder.
    from confide_proxy.devices.space_connection import SpaceConnection

    deadline_s = DEADLINE_S if paths.link.exists() else START_DEADLINE_S
    try:
        async with asyncio.timeout(deadline_s), SpaceConnection.open(paths, config) as space:
            answer = await attach(space.connection, {"project": GLOBAL_PROJECT}, space.keyring.unlock)
            state = await decide_name(names, claim, space.connection, paths.ledgers, answer["space"])
    except (ConfideError, TimeoutError):
        state = NameOrigin.UNASKED
    return await _note_decision(names, claim, state)


def before(paths: ProxyPaths, claim: Claim) -> Project | None:
    """Return the project of a folder without asking the daemon. None if its name has not been
    decided yet and does not follow from its git remote. Blocks briefly.

    Raises KeyFileError if other users could have written the stored decisions.
    """
    decision = ProjectNames(paths.projects).about(claim)
    if decision is not None and decision.state is not NameOrigin.FORGOTTEN:
        return decision.project(claim)
    return claim.grant() if claim.basis is Basis.REMOTE else None


def allow(paths: ProxyPaths, claim: Claim) -> Project:
    """Record that the user allows a folder the name that it claims, and return its project. Blocks
    briefly. Raises KeyFileError if the decision cannot be stored.
    """
    return ProjectNames(paths.projects).note(claim, NameOrigin.ALLOWED).project(claim)


async def named_over(link: RequestChannel, paths: ProxyPaths, claim: Claim, space: str) -> Project:
    """Return the project of a folder as `resolve_project` does, over a link that has attached the
    global project.

    Raises RequestError, ConnectionLost or TimeoutError if the daemon cannot be asked.
    """
    names = ProjectNames(paths.projects)
    before = await asyncio.to_thread(_final_decision, names, claim, paths.journal)
    if before is not None:
        return before.project(claim)
    state = (
        NameOrigin.REMOTE
        if claim.basis is Basis.REMOTE
        else await decide_name(names, claim, link, paths.ledgers, space)
    )
    return (await _note_decision(names, claim, state)).project


async def decide_name(names: ProjectNames, claim: Claim, link: RequestChannel, ledgers: Path, space: str) -> NameOrigin:
    """Decide if a folder gets the project name that it claims, and return the reason.

    Raises RequestError, ConnectionLost or TimeoutError if the daemon cannot be asked.
    """
    # Names with a slash are for remotes: a file must not take the name of a repository that is
    # cloned tomorrow.
    is_free = not (claim.basis is Basis.FILE and "/" in claim.name)
    is_free = is_free and not await asyncio.to_thread(names.is_held, claim)
    if is_free:
        known: set[str] | None = None
        is_whole = False
        with suppress(UnfitAnswerError):  # without the daemon's list of projects, no name is granted
            answer = await PROJECTS.ask(link, {"project": GLOBAL_PROJECT}, timeout_s=_REQUEST_S)
            known, is_whole = {each["name"] for each in answer["projects"]}, answer["complete"]
        before = await asyncio.to_thread(names.about, claim)
        if before is not None and known is not None and before.state is NameOrigin.UNASKED and before.name in known:
            own = await asyncio.to_thread(SyncLedger, ledgers, space, claim.root, before.name)
            # Another session has sent calls that were queued here: under the other name they would
            # reach no file of this folder.
            if not own.count():
                return NameOrigin.UNASKED
        is_free = known is not None and claim.name not in known and is_whole
    if is_free:
        return NameOrigin.FIRST
    # After a first decision, files are no evidence: copies of the other project's files can be
    # planted.
    is_known = await asyncio.to_thread(names.is_known, claim)
    return NameOrigin.USED if not is_known and await _was_used(claim, link, ledgers, space) else NameOrigin.OWN


async def _was_used(claim: Claim, link: RequestChannel, ledgers: Path, space: str) -> bool:
    """Return True if the project has a revision that an earlier version, without recorded
    decisions, confirmed for a file of this folder.
    """
    ledger = await asyncio.to_thread(SyncLedger, ledgers, space, claim.root)
    entries = list(islice(ledger.all().items(), _LOOKED_AT))
    if not entries:
        return False
    try:
        await ATTACH.ask(link, {"project": claim.name}, timeout_s=_REQUEST_S)
    except RequestError:
        return False  # no grant for it
    for path, confirmed in entries:
        with suppress(RequestError):  # the daemon has no such revision
            body: PullRequest = {"project": claim.name, "path": path, "revision": confirmed.revision}
            answer = await PULL.ask(link, body, timeout_s=_REQUEST_S)
            if answer["hash"] == confirmed.hash:
                return True
    return False


async def _note_decision(names: ProjectNames, claim: Claim, state: NameOrigin) -> Named:
    try:
        decision = await asyncio.to_thread(names.note, claim, state)
        earlier = await asyncio.to_thread(names.earlier_name, claim)
    except KeyFileError:  # a full or read-only disk: it is decided again the next time
        return Named(ClaimOutcome.of(claim, state).project(claim), is_new=True)
    return Named(decision.project(claim), is_new=True, earlier=earlier)


def _final_decision(names: ProjectNames, claim: Claim, journal: Path) -> ClaimOutcome | None:
    """Return the recorded decision if it is final."""
    decision = names.about(claim)
    if decision is None or decision.state is NameOrigin.FORGOTTEN:
        return None
    # Calls queued under its own name are written to its files first, and reach the other project
    # with them.
    return None if decision.state is NameOrigin.UNASKED and not (journal / "queue").exists() else decision


def _parse(line: bytes) -> ClaimOutcome | None:
    try:
        match json.loads(line):
            case [str(home), str(claim), str(state), str(mark)]:
                return ClaimOutcome(home, claim, NameOrigin(state), mark)
    except ValueError:
        return None  # damaged, or of another version: it is decided again
    return None


def _newest_decisions(decisions: list[ClaimOutcome]) -> list[ClaimOutcome]:
    by_people = (NameOrigin.ALLOWED, NameOrigin.FORGOTTEN)
    kept: list[ClaimOutcome] = []
    room = {True: KEPT_BYTES, False: KEPT_BYTES}
    for each in reversed(decisions):
        room[each.state in by_people] -= len(each.line())
        if room[each.state in by_people] >= 0:
            kept.append(each)
    return kept[::-1]
