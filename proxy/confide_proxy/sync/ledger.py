"""What the daemon has confirmed of each file on this machine: its hash, its revision, and the stat that goes with them.

The ledger is what makes a comparison of states cheap and an edit's base known. It is derived: losing it, or a line of it, costs one
comparison. So it is an append-only file of JSON lines and no database: several `confide mcp` processes share it by appending whole lines
and reading on from where they were, and it spares each of them the 1.7 MB of resident memory that SQLite took here.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

COMPACT_AFTER = 1000
"""Superseded lines before the file is written anew, at the next start."""


UNREAD: Final = -1
"""The size of a file that is to be read again, whatever it looks like."""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A file as both ends last agreed on it.

    Attributes:
        hash: of the text that the daemon has.
        mark: with what the file was sealed (`FileSealer.mark`).
        own: of the file as it is sealed, where that is another text and yet not to be sent; "" else.
    """

    hash: str
    revision: int
    size: int
    mtime_ns: int
    mark: str = ""
    own: str = ""

    def matches(self, digest: str) -> bool:
        """Whether a file whose text has this hash as it goes out is as it was agreed on."""
        return digest == self.hash or (bool(self.own) and digest == self.own)

    def looks_like(self, size: int, mtime_ns: int, mark: str) -> bool:
        """Whether the file need not be read."""
        return (self.size, self.mtime_ns, self.mark) == (size, mtime_ns, mark)


class Ledger:
    """The confirmed state of one folder in one space, in a file of its own below `folder`. Methods touch the disk briefly."""

    def __init__(self, folder: Path, space: str, root: Path) -> None:
        name = hashlib.blake2b(f"{space}\0{root}".encode(errors="surrogateescape"), digest_size=16).hexdigest()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = folder / f"{name}.jsonl"
        self.locks = folder / f"{name}.lock"
        self._entries: dict[str, Confirmed] = {}
        self._removed: dict[str, int] = {}
        self._inode = -1
        self._offset = 0
        self._lines = 0
        # Of this object, whose methods several threads call: two that read on from one place would take it for twice as far.
        self._own = threading.Lock()
        self._catch_up()
        if self._lines > len(self._entries) + COMPACT_AFTER:
            self._compact()

    def all(self) -> dict[str, Confirmed]:
        """Every confirmed file of the folder, by path."""
        with self._own:
            self._catch_up()
            return dict(self._entries)

    def count(self) -> int:
        """How many files are confirmed."""
        with self._own:
            self._catch_up()
            return len(self._entries)

    def get(self, path: str) -> Confirmed | None:
        """The confirmed state of one file, or None."""
        with self._own:
            self._catch_up()
            return self._entries.get(path)

    def removed_at(self, path: str) -> int:
        """The revision that removed a file at both ends, as far as it is remembered; 0 if it is not, or the file is there again."""
        with self._own:
            self._catch_up()
            return self._removed.get(path, 0)

    def set(self, path: str, state: Confirmed) -> None:
        """Remember what both ends agreed on."""
        self._append(_line(path, state))

    def forget(self, path: str, revision: int = 0) -> None:
        """The file is deleted on both ends, with `revision` where that is known."""
        self._append([path, revision] if revision else [path])

    def _append(self, line: list[str | int]) -> None:
        while True:
            fd = os.open(self._file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _lock(fd, fcntl.LOCK_SH)
                size = os.fstat(fd).st_size
                if not _is_at(fd, self._file):
                    continue  # another process has just compacted it
                # A line that a crash or a full disk cut short is ended, so that it spoils none but itself.
                torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
                # One write of one whole line: O_APPEND keeps the lines of several processes apart.
                os.write(fd, (b"\n" if torn else b"") + _encoded(line))
                return
            finally:
                os.close(fd)

    def _catch_up(self) -> None:
        try:
            with self._file.open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if inode != self._inode:  # the first time, or another process has compacted it
                    self._inode, self._offset, self._lines = inode, 0, 0
                    self._entries.clear()
                    self._removed.clear()
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        whole = data[: data.rfind(b"\n") + 1]  # a line being written, or cut by a crash, is not read yet
        self._offset += len(whole)
        for line in whole.splitlines():
            self._lines += 1
            self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            match json.loads(line):
                case [str(path), str(digest), int(revision), int(size), int(mtime_ns)]:
                    self._entries[path] = Confirmed(digest, revision, size, mtime_ns)
                    self._removed.pop(path, None)
                case [str(path), str(digest), int(revision), int(size), int(mtime_ns), str(mark), str(own)]:
                    self._entries[path] = Confirmed(digest, revision, size, mtime_ns, mark, own)
                    self._removed.pop(path, None)
                case [str(path), int(revision)]:
                    self._entries.pop(path, None)
                    self._removed[path] = revision
                case [str(path)]:
                    self._entries.pop(path, None)
        except ValueError:
            return  # damaged: the file is compared as if it had never been confirmed

    def _compact(self) -> None:
        part = self._file.with_suffix(f".{os.getpid()}.tmp")
        fd = os.open(self._file, os.O_RDWR | os.O_CLOEXEC)
        try:
            _lock(fd, fcntl.LOCK_EX)  # nobody appends to what is about to go
            if not _is_at(fd, self._file):
                return
            self._catch_up()
            with part.open("wb") as file:
                for path, state in self._entries.items():
                    file.write(_encoded(_line(path, state)))
            part.chmod(0o600)
            part.replace(self._file)
        except OSError:
            part.unlink(missing_ok=True)  # a full disk: it stays as long as it is
        finally:
            os.close(fd)


def _lock(fd: int, kind: int) -> None:
    with suppress(OSError):  # a file system without locks
        fcntl.flock(fd, kind)


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def _line(path: str, state: Confirmed) -> list[str | int]:
    seal = [state.mark, state.own] if state.mark or state.own else []
    return [path, state.hash, state.revision, state.size, state.mtime_ns, *seal]


def _encoded(line: list[str | int]) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"
