"""The queue of writing calls that agents made while the daemon was unreachable.

A call is on the disk before its agent gets the response that it is queued. All calls are sent again
in order, each applied once by its operation id, and removed when the daemon has responded. Calls
that the daemon refuses for good are kept with the reason until a user decides.

All sessions and commands of a device share the journal. It consists of files of encrypted records
that several processes append to, safe against crashes. A record is one line: base64 of a nonce and
of its JSON, encrypted by XChaCha20-Poly1305 under a key of this device. The key is in another file
beside the journal, so a copy of the journal alone reveals nothing. In a file that was truncated, or
damaged in the middle, the lines before and after the damage stay readable: a line that does not
decrypt is counted and skipped. A record with the field `gone` deletes the record with its id.
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

from confide_crypto import atomic, portable
from confide_crypto.keys.private_files import make_private_dir, read_private_file, write_private_file
from confide_proxy.errors import JournalError, StateError
from confide_proxy.locks import lock_file, try_lock
from confide_proxy.offline.operations import is_empty

MAX_ENTRIES: Final = 10_000
MAX_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of queued calls, and of refused ones; a longer absence of the daemon needs a user's
attention, not a larger file.
"""
LOCK_DEADLINE_S: Final = 3.0
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 24
_TAIL_BYTES: Final = 32
"""Bytes at the end of a record, unique to it since they are ciphertext."""
_GARBAGE_BYTES: Final = 1024 * 1024
"""Bytes of deleted records after which the file is written again."""


@dataclass(frozen=True, slots=True)
class QueuedCall:
    """A call of a tool that waits for the daemon, or that the daemon has refused.

    Attributes:
        id: the operation id, 32 hex digits.
        at, said: the time of the call, in seconds since 1970, and as ISO 8601 with the time zone
            for the daemon.
        project: the project of the session that made the call.
        path, target: path of the document that the call changes, "" if the tool names none; and
            that document's project.
        arguments: the call's arguments, as the agent gave them.
        code, why: the error code (PROTOCOL.md 7.2) and the message with which the daemon refused
            it; "" while it is queued.
        class_: the class of the stored text, if this device set one; "" if the daemon decides
            (docs/agents.md).
        seen: the files or parts of code that the stored note is about, with hashes of their state
            at the time of the call; None if it is about none.
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
    seen: dict[str, str] | None = None

    @classmethod
    def of(cls, record: dict[str, Any]) -> Self:
        return cls(**{name: record[name] for name in cls.__slots__ if name in record})


@dataclass(frozen=True, slots=True)
class JournalCounts:
    """Numbers of queued calls, of refused calls (`dead`) and of unreadable records. `since` is the
    time of the oldest queued call; None if there is none.
    """

    queued: int = 0
    dead: int = 0
    damaged: int = 0
    since: float | None = None


@dataclass(frozen=True, slots=True)
class RecordPosition:
    """Position of a record in its file, in bytes. `head` is the record without the call's
    arguments.
    """

    offset: int
    length: int
    head: dict[str, Any]


class SealedLog:
    """A file of encrypted records. Methods block, and raise OSError if the disk fails. The caller
    must hold the lock that all processes share.

    Attributes:
        live: the records that were not deleted, by id, in order, as of the last `catch_up`.
        damaged_count: the number of unreadable lines.
    """

    def __init__(self, file: Path, key: Callable[[], bytes]) -> None:
        self.file = file
        self._key = key
        self._label = b"confide/journal/1\0" + file.name.encode()
        self._inode = -1
        self.live: dict[str, RecordPosition] = {}
        self.damaged_count = 0
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
        """Read the records that this or another process has appended since the last call."""
        try:
            with self.file.open("rb") as file:
                status = os.fstat(file.fileno())
                # A new file may get the inode number of a deleted one: check the last bytes that
                # were read as well.
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
        """Append a record, completely or not at all. With `is_durable`, it is written through to
        the disk before this returns.
        """
        line = self._seal(record)
        is_new = not self.file.exists()
        fd = os.open(self.file, os.O_RDWR | os.O_APPEND | os.O_CREAT | portable.NO_LINK | portable.CLOSED, 0o600)
        try:
            size = os.fstat(fd).st_size
            if size and portable.read_at(fd, 1, size - 1) != b"\n":
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
        """Read a whole record. None if the file was replaced since the last `catch_up`, so that the
        position is no longer valid.
        """
        try:
            with self.file.open("rb") as file:
                if os.fstat(file.fileno()).st_ino != self._inode:
                    return None
                file.seek(place.offset)
                return self._decrypt_line(file.read(place.length))
        except FileNotFoundError:
            return None

    def tidy(self, damaged: Path, *, now: bool = False) -> None:
        """Free the space of deleted records. The file is deleted if no record is left, and written
        again if many were deleted; with `now`, also if few were.

        Unreadable lines are appended to the file `damaged`, where a user can still inspect them.
        """
        self.catch_up()
        if self.live and not now and self._offset - self._live_bytes < max(_GARBAGE_BYTES, self._live_bytes):
            return
        if self.damaged_count:
            with open(os.open(damaged, os.O_WRONLY | os.O_APPEND | os.O_CREAT | portable.CLOSED, 0o600), "ab") as kept:
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
                yield from (line for line in file if line.strip() and self._decrypt_line(line) is None)
        except FileNotFoundError:
            return

    def _forget(self, inode: int) -> None:
        self._inode, self._offset, self._live_bytes, self.damaged_count = inode, 0, 0, 0
        self._tail = b""
        self.live.clear()

    def _take(self, offset: int, line: bytes) -> None:
        if not line.strip():
            return
        record = self._decrypt_line(line)
        if record is None:
            self.damaged_count += 1
            return
        identity = str(record["id"])
        before = self.live.pop(identity, None)
        self._live_bytes -= before.length if before else 0
        if not record.get("gone"):
            head = {name: value for name, value in record.items() if name != "arguments"}
            self.live[identity] = RecordPosition(offset, len(line), head)
            self._live_bytes += len(line)

    def _seal(self, record: dict[str, object]) -> bytes:

        text = json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return base64.b64encode(nonce + seal(text, self._label, nonce, self._key())) + b"\n"

    def _decrypt_line(self, line: bytes) -> dict[str, object] | None:

        try:
            data = base64.b64decode(line.strip(), validate=True)
            nonce, sealed = data[:_NONCE_BYTES], data[_NONCE_BYTES:]
            record = json.loads(unseal(sealed, self._label, nonce, self._key()).decode("utf-8", "surrogatepass"))
        except (ValueError, TypeError, CryptoError):
            return None
        return record if isinstance(record, dict) and "id" in record else None


class Journal:
    """The queue of calls in `folder`. Methods block; any thread may call them.

    Every method raises StateError if the disk fails, KeyFileError if the key cannot be used, and
    JournalError if another process does not release the lock.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key_bytes: bytes | None = None
        self._queue = SealedLog(folder / "queue", self._key)
        self._refused_log = SealedLog(folder / "refused", self._key)
        self._own = threading.Lock()

    @property
    def damaged_file(self) -> Path:
        return self.folder / "damaged"

    def append(self, entry: QueuedCall) -> int:
        """Queue a call, on disk when this returns; return the number of queued calls. Raises
        JournalError if the queue is full.
        """
        with self._lock():
            self._queue.catch_up()
            self._check_room(self._queue, "queued")
            self._queue.append(asdict(entry))
            self._queue.catch_up()
            return len(self._queue.live)

    def counts(self) -> JournalCounts:
        if not self.folder.exists():
            return JournalCounts()
        with self._lock():
            self._catch_up()
            queued, dead = self._queue.live, self._dead()
            damaged = self._queue.damaged_count + self._refused_log.damaged_count + _lines(self.damaged_file)
            since = min((float(place.head["at"]) for place in queued.values()), default=None)
            return JournalCounts(len(queued), len(dead), damaged, since)

    def heads(self) -> list[QueuedCall]:
        """Return all calls without their arguments: queued ones in order, then refused ones."""
        if not self.folder.exists():
            return []
        with self._lock():
            self._catch_up()
            places = [*self._queue.live.values(), *self._dead().values()]
            return [QueuedCall.of({**place.head, "arguments": {}}) for place in places]

    def waiting(self, targets: frozenset[str]) -> list[QueuedCall]:
        """Return the queued calls that change documents of these projects, in order."""
        if is_empty(self.folder):
            return []
        with self._lock():
            self._queue.catch_up()
            chosen = [place for place in self._queue.live.values() if place.head["target"] in targets]
            return [entry for place in chosen if (entry := _load(self._queue, place))]

    def first(self, apart: Container[str] = ()) -> QueuedCall | None:
        """Return the next call to send, without those whose ids are in `apart`; None if there is
        none.
        """
        if is_empty(self.folder):
            return None
        with self._lock():
            self._queue.catch_up()
            place = next((place for name, place in self._queue.live.items() if name not in apart), None)
            if not self._queue.live:
                self._queue.tidy(self.damaged_file)  # the process that removed the last one skipped this
            return _load(self._queue, place) if place else None

    def get(self, identity: str) -> QueuedCall | None:
        """Return the queued or refused call with this id, or with the only id that begins so; None
        if there is none or several.
        """
        if not self.folder.exists():
            return None
        with self._lock():
            self._catch_up()
            found = self._find(identity)
            return _load(*found) if found else None

    def remove_applied(self, identity: str) -> None:
        """Remove a call that the daemon has applied. After a power cut the removal may be lost:
        then the call is sent again, and the daemon ignores it by its operation id.
        """
        with self._lock():
            self._queue.append({"id": identity, "gone": True}, is_durable=False)
            self._refused_log.catch_up()
            if identity in self._refused_log.live:  # left there by a crash in `retry`
                self._refused_log.append({"id": identity, "gone": True}, is_durable=False)

    def refuse(self, entry: QueuedCall, code: str, why: str) -> None:
        """Move a call that the daemon has refused to the refused calls, with the error code and the
        reason.

        Raises JournalError if there are too many refused calls already; this one then stays queued.
        """
        with self._lock():
            self._refused_log.catch_up()
            self._check_room(self._refused_log, "refused")
            # In this order, so that a crash in between leaves the call in at least one file.
            self._refused_log.append({**asdict(entry), "code": code, "why": why})
            self._queue.append({"id": entry.id, "gone": True})

    def retry(self, identity: str) -> QueuedCall | None:
        """Queue a refused call again, after the others; None if no refused call has this id.

        Raises JournalError if the queue is full.
        """
        with self._lock():
            self._catch_up()
            place = self._dead().get(identity)
            entry = _load(self._refused_log, place) if place else None
            if entry is None:
                return None
            self._check_room(self._queue, "queued")
            # It gets the present time, since a user has decided now that it is to be done.
            self._queue.append({**asdict(entry), "code": "", "why": "", "at": time.time()})
            self._refused_log.append({"id": identity, "gone": True})
            self._refused_log.tidy(self.damaged_file)
            return entry

    def drop(self, identity: str) -> bool:
        """Delete a queued or refused call; return False if none has this id."""
        with self._lock():
            self._catch_up()
            logs = [log for log in (self._queue, self._refused_log) if identity in log.live]
            for log in logs:
                log.append({"id": identity, "gone": True})
                log.tidy(self.damaged_file)
            return bool(logs)

    def tidy(self) -> None:
        """Rewrite the files of queued and refused calls without the deleted ones."""
        with self._lock():
            for log in (self._queue, self._refused_log):
                log.tidy(self.damaged_file, now=True)

    def drop_damaged(self) -> int:
        """Delete all unreadable records, and return how many there were."""
        if not self.folder.exists():
            return 0
        with self._lock():
            self._catch_up()
            count = self._queue.damaged_count + self._refused_log.damaged_count + _lines(self.damaged_file)
            for log in (self._queue, self._refused_log):
                log.tidy(self.damaged_file, now=True)
            self.damaged_file.unlink(missing_ok=True)
            return count

    def _catch_up(self) -> None:
        self._queue.catch_up()
        self._refused_log.catch_up()

    def _dead(self) -> dict[str, RecordPosition]:
        # After a crash between the two steps of `refuse` or `retry` a call is in both files: it
        # counts as queued.
        return {name: place for name, place in self._refused_log.live.items() if name not in self._queue.live}

    def _find(self, identity: str) -> tuple[SealedLog, RecordPosition] | None:
        places = [(self._queue, name, place) for name, place in self._queue.live.items()]
        places += [(self._refused_log, name, place) for name, place in self._dead().items()]
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
    def _lock(self) -> Iterator[None]:
        with self._own:
            try:
                make_private_dir(self.folder)
                fd = lock_file(self.folder / "lock")
                try:
                    if not try_lock(fd, wait_s=LOCK_DEADLINE_S):
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


def _load(log: SealedLog, place: RecordPosition) -> QueuedCall | None:
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
