"""What waits on this machine for the daemon: calls that change something, made while it could not be reached.

A call is on the disk before its agent is told that it is queued. All are sent again in order, each made once by the id of its operation,
and taken out when the daemon has answered; what the daemon refuses for good is kept with the reason until a person decides.

All sessions and commands of a machine share the journal: files of sealed records that only grow, which several processes append to, and
which no crash may take from. A record is one line: base64 of a nonce and of XChaCha20-Poly1305 of its JSON, under a key of this machine
that lies beside them: a copied journal alone tells nothing. Lines make a file that was cut off, or damaged in the middle, readable before
and behind the damage: a line that does not open is counted and passed over. A record with `gone` takes back the one of its id.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_decrypt as unseal
from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_encrypt as seal
from nacl.exceptions import CryptoError

from confide_crypto import atomic
from confide_crypto.keys.private_files import make_private_dir, read_private_file, write_private_file
from confide_proxy.errors import JournalError, StateError
from confide_proxy.locks import lock_file, taken
from confide_proxy.offline.operations import is_empty

MAX_ENTRIES: Final = 10_000
MAX_BYTES: Final = 64 * 1024 * 1024
"""Of the queue, and as much again of what was refused; a longer absence needs a person, not a larger file."""
LOCK_DEADLINE_S: Final = 3.0
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 24
_TAIL_BYTES: Final = 32
"""Of a record's end, which no other record has: its ciphertext."""
_GARBAGE_BYTES: Final = 1024 * 1024
"""Of records that were taken back, before the file is written anew."""


@dataclass(frozen=True, slots=True)
class QueuedCall:
    """A call that waits.

    Attributes:
        id: of its operation, 32 hex digits.
        at, said: when it was made, in seconds since 1970 and as ISO 8601 with the time zone, as the daemon is told.
        project: of the session that made it.
        path, target: the document that it changes, "" where the tool names none, and the project of that.
        arguments: as the agent gave them.
        code, why: why it was refused (PROTOCOL.md 7.2), and the daemon's sentence for that; "" while it waits.
        class_: of what it stores, where its machine says one; "": the daemon's own judgement (docs/agents.md).
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
    class_: str = ""

    @classmethod
    def of(cls, record: dict[str, Any]) -> Self:
        return cls(**{name: record[name] for name in cls.__slots__ if name in record})


@dataclass(frozen=True, slots=True)
class JournalCounts:
    """How many calls wait for the daemon, how many it refused for good, and how many records cannot be read; `since` is when the oldest
    that waits was made."""

    queued: int = 0
    dead: int = 0
    damaged: int = 0
    since: float | None = None


@dataclass(frozen=True, slots=True)
class RecordPosition:
    """Where a living record stands, and its `head`: the record without its arguments."""

    offset: int
    length: int
    head: dict[str, Any]


class SealedLog:
    """One such file. Methods block, and raise OSError where the disk refuses; who calls holds the lock that all its processes share.

    Attributes:
        live: the records that were not taken back, by id, in order; as `catch_up` last found them.
        damaged: how many lines could not be read.
    """

    def __init__(self, file: Path, key: Callable[[], bytes]) -> None:
        self.file = file
        self._key = key
        self._label = b"confide/journal/1\0" + file.name.encode()
        self._inode = -1
        self.live: dict[str, RecordPosition] = {}
        self.damaged = 0
        self._offset = 0
        self._tail = b""
        self._live_bytes = 0

    @property
    def size(self) -> int:
        try:
            return self.file.stat().st_size
        except FileNotFoundError:
            return 0

    def catch_up(self) -> None:
        """Read what has been appended since the last time, by whomever."""
        try:
            with self.file.open("rb") as file:
                status = os.fstat(file.fileno())
                # A file system gives a new file the number of one that was just removed: it is told by what was read of it last.
                file.seek(self._offset - len(self._tail))
                if status.st_ino != self._inode or file.read(len(self._tail)) != self._tail:
                    self._forget(status.st_ino)
                    file.seek(0)
                for line in file:
                    self._take(self._offset, line)
                    self._offset += len(line)
                    self._tail = line[-_TAIL_BYTES:]
        except FileNotFoundError:
            self._forget(-1)

    def append(self, record: dict[str, Any], *, is_durable: bool = True) -> None:
        """Add a record, whole or not at all; on the disk on return if it is to be durable."""
        line = self._sealed(record)
        is_new = not self.file.exists()
        fd = os.open(self.file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                line = b"\n" + line  # after a record that a crash cut off
            try:
                _write_whole(fd, line)
                if is_durable:
                    os.fsync(fd)
            except OSError:
                os.ftruncate(fd, size)
                raise
        finally:
            os.close(fd)
        if is_new and is_durable:
            atomic.sync(self.file.parent)

    def load(self, place: RecordPosition) -> dict[str, object] | None:
        """A whole record; None where the file is not as it was at the last `catch_up`."""
        try:
            with self.file.open("rb") as file:
                if os.fstat(file.fileno()).st_ino != self._inode:
                    return None
                file.seek(place.offset)
                return self._opened(file.read(place.length))
        except FileNotFoundError:
            return None

    def tidy(self, damaged: Path, *, now: bool = False) -> None:
        """Drop what was taken back: the whole file once nothing lives in it, else when there is much of it, or `now`.

        Lines that cannot be read are moved to the file `damaged`: they may be of use to somebody, and are in nobody's way there.
        """
        self.catch_up()
        if self.live and not now and self._offset - self._live_bytes < max(_GARBAGE_BYTES, self._live_bytes):
            return
        if self.damaged:
            with open(os.open(damaged, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600), "ab") as kept:
                kept.writelines(line.rstrip(b"\n") + b"\n" for line in self._unreadable())
                kept.flush()
                os.fsync(kept.fileno())
        if not self.live:
            self.file.unlink(missing_ok=True)
        else:
            self._rewrite()
        atomic.sync(self.file.parent)
        self.catch_up()

    def _rewrite(self) -> None:
        with self.file.open("rb") as old, atomic.replacing(self.file) as new:
            for place in self.live.values():
                old.seek(place.offset)
                new.write(old.read(place.length).rstrip(b"\n") + b"\n")

    def _unreadable(self) -> Iterator[bytes]:
        try:
            with self.file.open("rb") as file:
                yield from (line for line in file if line.strip() and self._opened(line) is None)
        except FileNotFoundError:
            return

    def _forget(self, inode: int) -> None:
        self._inode, self._offset, self._live_bytes, self.damaged = inode, 0, 0, 0
        self._tail = b""
        self.live.clear()

    def _take(self, offset: int, line: bytes) -> None:
        if not line.strip():
            return
        record = self._opened(line)
        if record is None:
            self.damaged += 1
            return
        identity = str(record["id"])
        before = self.live.pop(identity, None)
        self._live_bytes -= before.length if before else 0
        if not record.get("gone"):
            head = {name: value for name, value in record.items() if name != "arguments"}
            self.live[identity] = RecordPosition(offset, len(line), head)
            self._live_bytes += len(line)

    def _sealed(self, record: dict[str, Any]) -> bytes:

        text = json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return base64.b64encode(nonce + seal(text, self._label, nonce, self._key())) + b"\n"

    def _opened(self, line: bytes) -> dict[str, Any] | None:

        try:
            data = base64.b64decode(line.strip(), validate=True)
            nonce, sealed = data[:_NONCE_BYTES], data[_NONCE_BYTES:]
            record = json.loads(unseal(sealed, self._label, nonce, self._key()).decode("utf-8", "surrogatepass"))
        except (ValueError, TypeError, CryptoError):
            return None
        return record if isinstance(record, dict) and "id" in record else None


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
        return self.folder / "damaged"

    def append(self, entry: QueuedCall) -> int:
        """Keep a call; it is on the disk on return. How many wait now. Raises JournalError: the journal is full."""
        with self._held():
            self._queue.catch_up()
            self._check_room(self._queue, "queued")
            self._queue.append(asdict(entry))
            self._queue.catch_up()
            return len(self._queue.live)

    def counts(self) -> JournalCounts:
        if not self.folder.exists():
            return JournalCounts()
        with self._held():
            self._catch_up()
            queued, dead = self._queue.live, self._dead()
            damaged = self._queue.damaged + self._refused.damaged + _lines(self.damaged_file)
            since = min((float(place.head["at"]) for place in queued.values()), default=None)
            return JournalCounts(len(queued), len(dead), damaged, since)

    def heads(self) -> list[QueuedCall]:
        """All calls, those that wait first and in order, then those that were refused; without their arguments."""
        if not self.folder.exists():
            return []
        with self._held():
            self._catch_up()
            places = [*self._queue.live.values(), *self._dead().values()]
            return [QueuedCall.of({**place.head, "arguments": {}}) for place in places]

    def waiting(self, targets: frozenset[str]) -> list[QueuedCall]:
        """The calls that wait to change documents of these projects, in order."""
        if is_empty(self.folder):
            return []
        with self._held():
            self._queue.catch_up()
            chosen = [place for place in self._queue.live.values() if place.head["target"] in targets]
            return [entry for place in chosen if (entry := _loaded(self._queue, place))]

    def first(self, apart: Container[str] = ()) -> QueuedCall | None:
        """The call that is to be sent next, of those whose ids are not in `apart`."""
        if is_empty(self.folder):
            return None
        with self._held():
            self._queue.catch_up()
            place = next((place for name, place in self._queue.live.items() if name not in apart), None)
            if not self._queue.live:
                self._queue.tidy(self.damaged_file)  # the process that removed the last one skipped this
            return _loaded(self._queue, place) if place else None

    def get(self, identity: str) -> QueuedCall | None:
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

    def bury(self, entry: QueuedCall, code: str, why: str) -> None:
        """The daemon refuses it for good: keep it with the reason.

        Raises JournalError: too many were refused already; this one goes on waiting.
        """
        with self._held():
            self._refused.catch_up()
            self._check_room(self._refused, "refused")
            # In this order: whatever happens in between, it is in one of the two.
            self._refused.append({**asdict(entry), "code": code, "why": why})
            self._queue.append({"id": entry.id, "gone": True})

    def retry(self, identity: str) -> QueuedCall | None:
        """Let a call that was refused wait again, behind the others; None if there is none of this id.

        Raises JournalError: the journal is full.
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

    def _catch_up(self) -> None:
        self._queue.catch_up()
        self._refused.catch_up()

    def _dead(self) -> dict[str, RecordPosition]:
        # A crash between the two steps of `bury` or `retry` leaves a call in both: it waits.
        return {name: place for name, place in self._refused.live.items() if name not in self._queue.live}

    def _found(self, identity: str) -> tuple[SealedLog, RecordPosition] | None:
        places = [(self._queue, name, place) for name, place in self._queue.live.items()]
        places += [(self._refused, name, place) for name, place in self._dead().items()]
        found = [(log, place) for log, name, place in places if name.startswith(identity)]
        return found[0] if len(found) == 1 else None

    def _check_room(self, log: SealedLog, what: str) -> None:
        if len(log.live) >= MAX_ENTRIES or log.size >= MAX_BYTES:
            log.tidy(self.damaged_file)
        if len(log.live) >= MAX_ENTRIES or log.size >= MAX_BYTES:
            raise JournalError(
                f"the journal of this device is full: {len(log.live):,} calls are {what} in it",
                hint="let it reach the daemon, or see confide sync --queue",
            )

    @contextmanager
    def _held(self) -> Iterator[None]:
        with self._own:
            try:
                make_private_dir(self.folder)
                fd = lock_file(self.folder / "lock")
                try:
                    if not taken(fd, wait_s=LOCK_DEADLINE_S):
                        why = "another confide process keeps the queue locked"
                        raise JournalError(why, hint="is one stuck? try again")
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
            try:
                key = bytes.fromhex(read_private_file(file).decode())
            except ValueError:
                key = b""
            if len(key) != _KEY_BYTES:
                hint = "restore it from a copy, or move it and the journal beside it away"
                raise JournalError(f"{file} is damaged", hint=hint)
            self._key_bytes = key
        return self._key_bytes


def _loaded(log: SealedLog, place: RecordPosition) -> QueuedCall | None:
    record = log.load(place)
    return QueuedCall.of(record) if record else None


def _lines(file: Path) -> int:
    try:
        with file.open("rb") as lines:
            return sum(1 for _ in lines)
    except FileNotFoundError:
        return 0


def _write_whole(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
