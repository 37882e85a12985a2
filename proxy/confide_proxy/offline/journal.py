"""What waits on this machine for the daemon: calls that change something, made while it could not be reached.

A call is on the disk before its agent is told that it is queued. All are sent again in order, each made once by the id of its operation,
and taken out when the daemon has answered; what the daemon refuses for good is kept with the reason until a person decides. The records
are sealed with a key of this machine that lies beside them: a copied journal alone tells nothing.

All sessions and commands of a machine share the journal.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from confide_crypto.keys.files import make_private_dir, read_private_file, write_private_file
from confide_proxy.errors import JournalError, StateError
from confide_proxy.locks import lock_file, taken
from confide_proxy.offline.encrypted_log import Place, SealedLog

MAX_ENTRIES: Final = 10_000
MAX_BYTES: Final = 64 * 1024 * 1024
"""Of the queue, and as much again of what was refused; a longer absence needs a person, not a larger file."""
LOCK_DEADLINE_S: Final = 3.0
_KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Entry:
    """A call that waits.

    Attributes:
        id: of its operation, 32 hex digits.
        at: when it was made, in seconds since 1970.
        said: the same as ISO 8601 with the time zone, as the daemon is told.
        project: of the session that made it.
        tool: its name.
        path: the document that it changes, "" where the tool names none.
        target: the project of that document.
        arguments: as the agent gave them.
        code: why it was refused (PROTOCOL.md 7.2); "" while it waits.
        why: the daemon's sentence for that.
    """

    id: str
    at: float
    said: str
    project: str
    tool: str
    path: str
    target: str
    arguments: dict[str, Any] = field(repr=False)
    code: str = ""
    why: str = ""

    @classmethod
    def of(cls, record: dict[str, Any]) -> Self:
        """From a record as it was written."""
        return cls(**{name: record[name] for name in cls.__slots__ if name in record})


@dataclass(frozen=True, slots=True)
class Counts:
    """What there is, without content.

    Attributes:
        queued: calls that wait for the daemon.
        dead: calls that it refused for good.
        damaged: records that cannot be read.
        since: when the oldest that waits was made; None if none does.
    """

    queued: int = 0
    dead: int = 0
    damaged: int = 0
    since: float | None = None


def is_empty(folder: Path) -> bool:
    """Whether nothing waits in the journal of this folder. One system call, and no lock."""
    return not (folder / "queue").exists()


def new_id() -> str:
    """An id for an operation."""
    return secrets.token_hex(16)


class Journal:
    """The journal in `folder`. Methods block; any thread may call them.

    Every method raises StateError where the disk refuses, KeyFileError where the key may not be used, and JournalError where another
    process does not let go of it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key_bytes: bytes | None = None
        self._queue = SealedLog(folder / "queue", self._key)
        self._refused = SealedLog(folder / "refused", self._key)
        self._own = threading.Lock()

    @property
    def damaged_file(self) -> Path:
        """Where records go that cannot be read."""
        return self.folder / "damaged"

    def append(self, entry: Entry) -> int:
        """Keep a call; it is on the disk on return. How many wait now.

        Raises:
            JournalError: the journal is full.
        """
        with self._held():
            self._queue.catch_up()
            self._check_room(self._queue, "queued")
            self._queue.append(asdict(entry))
            self._queue.catch_up()
            return len(self._queue.live)

    def counts(self) -> Counts:
        """How much there is."""
        if not self.folder.exists():
            return Counts()
        with self._held():
            self._catch_up()
            queued, dead = self._queue.live, self._dead()
            damaged = self._queue.damaged + self._refused.damaged + _lines(self.damaged_file)
            since = min((float(place.head["at"]) for place in queued.values()), default=None)
            return Counts(len(queued), len(dead), damaged, since)

    def heads(self) -> list[Entry]:
        """All calls, those that wait first and in order, then those that were refused; without their arguments."""
        if not self.folder.exists():
            return []
        with self._held():
            self._catch_up()
            places = [*self._queue.live.values(), *self._dead().values()]
            return [Entry.of({**place.head, "arguments": {}}) for place in places]

    def waiting(self, targets: frozenset[str]) -> list[Entry]:
        """The calls that wait to change documents of these projects, in order."""
        if is_empty(self.folder):
            return []
        with self._held():
            self._queue.catch_up()
            chosen = [place for place in self._queue.live.values() if place.head["target"] in targets]
            return [entry for place in chosen if (entry := _loaded(self._queue, place))]

    def first(self, apart: Container[str] = ()) -> Entry | None:
        """The call that is to be sent next, of those whose ids are not in `apart`."""
        if is_empty(self.folder):
            return None
        with self._held():
            self._queue.catch_up()
            place = next((place for name, place in self._queue.live.items() if name not in apart), None)
            if not self._queue.live:
                self._queue.tidy(self.damaged_file)  # whoever took the last one out had no time to
            return _loaded(self._queue, place) if place else None

    def get(self, identity: str) -> Entry | None:
        """One call by its id, or by the beginning of it if that is unique; whether it waits or was refused."""
        if not self.folder.exists():
            return None
        with self._held():
            self._catch_up()
            found = self._found(identity)
            return _loaded(*found) if found else None

    def done(self, identity: str) -> None:
        """The daemon has it; a power cut may undo this, and it is sent once more under the same id."""
        with self._held():
            self._queue.append({"id": identity, "gone": True}, is_durable=False)
            self._refused.catch_up()
            if identity in self._refused.live:  # left there by a crash in `retry`
                self._refused.append({"id": identity, "gone": True}, is_durable=False)

    def bury(self, entry: Entry, code: str, why: str) -> None:
        """The daemon refuses it for good: keep it with the reason.

        Raises:
            JournalError: too many were refused already; this one goes on waiting.
        """
        with self._held():
            self._refused.catch_up()
            self._check_room(self._refused, "refused")
            # In this order: whatever happens in between, it is in one of the two.
            self._refused.append({**asdict(entry), "code": code, "why": why})
            self._queue.append({"id": entry.id, "gone": True})

    def retry(self, identity: str) -> Entry | None:
        """Let a call that was refused wait again, behind the others; None if there is none of this id.

        Raises:
            JournalError: the journal is full.
        """
        with self._held():
            self._catch_up()
            place = self._dead().get(identity)
            entry = _loaded(self._refused, place) if place else None
            if entry is None:
                return None
            self._check_room(self._queue, "queued")
            # Its time is now: somebody has decided that it is to be done.
            self._queue.append({**asdict(entry), "code": "", "why": "", "at": time.time()})
            self._refused.append({"id": identity, "gone": True})
            self._refused.tidy(self.damaged_file)
            return entry

    def drop(self, identity: str) -> bool:
        """Throw a call away, whether it waits or was refused; False if there is none of this id."""
        with self._held():
            self._catch_up()
            logs = [log for log in (self._queue, self._refused) if identity in log.live]
            for log in logs:
                log.append({"id": identity, "gone": True})
                log.tidy(self.damaged_file)
            return bool(logs)

    def drop_damaged(self) -> int:
        """Throw away what cannot be read; how many records that were."""
        if not self.folder.exists():
            return 0
        with self._held():
            self._catch_up()
            count = self._queue.damaged + self._refused.damaged + _lines(self.damaged_file)
            for log in (self._queue, self._refused):
                log.tidy(self.damaged_file, now=True)
            self.damaged_file.unlink(missing_ok=True)
            return count

    def tidy(self) -> None:
        """Drop what was taken out."""
        if self.folder.exists():
            with self._held():
                self._queue.tidy(self.damaged_file)

    def _catch_up(self) -> None:
        self._queue.catch_up()
        self._refused.catch_up()

    def _dead(self) -> dict[str, Place]:
        # A crash between the two steps of `bury` or `retry` leaves a call in both: it waits.
        return {name: place for name, place in self._refused.live.items() if name not in self._queue.live}

    def _found(self, identity: str) -> tuple[SealedLog, Place] | None:
        places = [(self._queue, name, place) for name, place in self._queue.live.items()]
        places += [(self._refused, name, place) for name, place in self._dead().items()]
        found = [(log, place) for log, name, place in places if name.startswith(identity)]
        return found[0] if len(found) == 1 else None

    def _check_room(self, log: SealedLog, what: str) -> None:
        if len(log.live) >= MAX_ENTRIES or log.size >= MAX_BYTES:
            log.tidy(self.damaged_file)
        if len(log.live) >= MAX_ENTRIES or log.size >= MAX_BYTES:
            raise JournalError(
                f"the journal of this machine is full: {len(log.live):,} calls are {what} in it",
                hint="let it reach the daemon, or see confide queue",
            )

    @contextmanager
    def _held(self) -> Iterator[None]:
        with self._own:
            try:
                make_private_dir(self.folder)
                fd = lock_file(self.folder / "lock")
                try:
                    if not taken(fd, wait_s=LOCK_DEADLINE_S):
                        why = "another confide process does not let go of the journal"
                        raise JournalError(why, hint="does one hang? try again")
                    yield
                finally:
                    os.close(fd)
            except OSError as error:
                raise StateError(self.folder, error) from error

    def _key(self) -> bytes:
        if self._key_bytes is None:
            file = self.folder / "key"
            if not file.exists():
                write_private_file(file, secrets.token_bytes(_KEY_BYTES).hex().encode())
            self._key_bytes = _parsed(file)
        return self._key_bytes


def _parsed(file: Path) -> bytes:
    try:
        key = bytes.fromhex(read_private_file(file).decode())
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise JournalError(
            f"{file} is damaged", hint="restore it from a copy, or move it and the journal beside it away"
        )
    return key


def _loaded(log: SealedLog, place: Place) -> Entry | None:
    record = log.load(place)
    return Entry.of(record) if record else None


def _lines(file: Path) -> int:
    try:
        with file.open("rb") as lines:
            return sum(1 for _ in lines)
    except FileNotFoundError:
        return 0
