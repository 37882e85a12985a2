"""A file of sealed records that only grows: what several processes append to, and what no crash may take from.

A record is one line: base64 of a nonce and of XChaCha20-Poly1305 of its JSON, under a key of this machine. Lines make a file that was cut
off, or damaged in the middle, readable before and behind the damage: a line that does not open is counted and passed over. A record
with `gone` takes back the one of its id.

Who calls here holds the lock that all its processes share.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_NONCE_BYTES: Final = 24
_GARBAGE_BYTES: Final = 1024 * 1024
"""Of records that were taken back, before the file is written anew."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a living record stands, and its `head`: the record without its arguments."""

    offset: int
    length: int
    head: dict[str, Any]


class SealedLog:
    """One such file. Methods block, and raise OSError where the disk refuses.

    Attributes:
        live: the records that were not taken back, by id, in order; as `catch_up` last found them.
        damaged: how many lines could not be read.
    """

    def __init__(self, file: Path, key: Callable[[], bytes]) -> None:
        self.file = file
        self._key = key
        self._label = b"confide/journal/1\0" + file.name.encode()
        self._inode = -1
        self.live: dict[str, Place] = {}
        self.damaged = 0
        self._offset = 0
        self._live_bytes = 0

    @property
    def size(self) -> int:
        """Bytes on disk."""
        try:
            return self.file.stat().st_size
        except FileNotFoundError:
            return 0

    def catch_up(self) -> None:
        """Read what has been appended since the last time, by whomever."""
        try:
            with self.file.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._inode or status.st_size < self._offset:
                    self._forget(status.st_ino)
                file.seek(self._offset)
                for line in file:
                    self._take(self._offset, line)
                    self._offset += len(line)
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
                line = b"\n" + line  # behind a record that a crash has cut off
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
            _sync_folder(self.file.parent)

    def load(self, place: Place) -> dict[str, Any] | None:
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
        _sync_folder(self.file.parent)
        self.catch_up()

    def _rewrite(self) -> None:
        part = self.file.with_name(f".{self.file.name}.{os.getpid()}.tmp")
        try:
            with (
                self.file.open("rb") as old,
                open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as new,
            ):
                for place in self.live.values():
                    old.seek(place.offset)
                    new.write(old.read(place.length).rstrip(b"\n") + b"\n")
                new.flush()
                os.fsync(new.fileno())
            part.replace(self.file)
        finally:
            part.unlink(missing_ok=True)

    def _unreadable(self) -> Iterator[bytes]:
        try:
            with self.file.open("rb") as file:
                yield from (line for line in file if line.strip() and self._opened(line) is None)
        except FileNotFoundError:
            return

    def _forget(self, inode: int) -> None:
        self._inode, self._offset, self._live_bytes, self.damaged = inode, 0, 0, 0
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
            self.live[identity] = Place(offset, len(line), head)
            self._live_bytes += len(line)

    def _sealed(self, record: dict[str, Any]) -> bytes:
        from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_encrypt as seal

        text = json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return base64.b64encode(nonce + seal(text, self._label, nonce, self._key())) + b"\n"

    def _opened(self, line: bytes) -> dict[str, Any] | None:
        from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_decrypt as unseal
        from nacl.exceptions import CryptoError

        try:
            data = base64.b64decode(line.strip(), validate=True)
            nonce, sealed = data[:_NONCE_BYTES], data[_NONCE_BYTES:]
            record = json.loads(unseal(sealed, self._label, nonce, self._key()).decode("utf-8", "surrogatepass"))
        except (ValueError, TypeError, CryptoError):
            return None
        return record if isinstance(record, dict) and "id" in record else None


def _write_whole(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
