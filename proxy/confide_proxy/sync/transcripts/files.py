"""A transcript's file: its whole lines from an offset on, and what tells it from another one.

No symlink is followed: not to a folder, not to a file. Lines over `MAX_LINE_BYTES` are passed over without being held.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from confide_proxy.sync.transcripts.parsers import Parser
from confide_proxy.sync.walk import descended, listed

MAX_LINE_BYTES = 8 * 1024 * 1024
"""A line with a pasted image has a few MiB; what is longer says nothing that a search could find."""
MAX_FILES = 50_000
_CHUNK = 256 * 1024
_HEAD_BYTES = 4096
_MARK_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Found:
    """A transcript as a walk saw it, unread. `path` is absolute."""

    path: Path
    session: str
    inode: int
    size: int
    mtime_ns: int


def found_below(root: Path, parser: Parser) -> tuple[list[Found], list[Path]]:
    """The transcripts below a folder, the newest first, one file a session; and the folders that were looked into.

    What cannot be read is passed over.
    """
    found: dict[str, Found] = {}
    folders: list[Path] = []
    for path, entry in _entries(root, parser.depth, folders):
        session = parser.session_of(path.relative_to(root))
        if session is None:
            continue
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # gone since the folder was listed
        file = Found(path, session, status.st_ino, status.st_size, status.st_mtime_ns)
        if stat.S_ISREG(status.st_mode) and (session not in found or found[session].mtime_ns < file.mtime_ns):
            found[session] = file
    return sorted(found.values(), key=lambda file: -file.mtime_ns)[:MAX_FILES], folders


def looked_at(file: Found) -> Found | None:
    """The same file as it is now; None if it is gone."""
    try:
        status = file.path.lstat()
    except OSError:
        return None
    return replace(file, inode=status.st_ino, size=status.st_size, mtime_ns=status.st_mtime_ns)


def _entries(root: Path, depth: int, folders: list[Path], folder: str = "") -> Iterator[tuple[Path, os.DirEntry[str]]]:
    folders.append(root / folder)
    for path, entry in listed(root, folder):
        if entry.is_dir(follow_symlinks=False):
            if depth:
                yield from _entries(root, depth - 1, folders, path)
        elif not entry.is_symlink():
            yield root / path, entry


@contextmanager
def opened(root: Path, path: Path) -> Iterator[int]:
    """A descriptor of a file below `root`.

    Raises:
        OSError: it is gone, behind a symlink, no regular file, or may not be read.
    """
    *folders, name = path.relative_to(root).parts
    with descended(root, folders) as parent:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(None, "not a regular file")
        yield fd
    finally:
        os.close(fd)


def whole_lines(fd: int, begin: int) -> Iterator[tuple[int, bytes | None]]:
    """(where it ends, the line without its newline) from an offset on; None in place of one that is too long.

    A last line without a newline is still being written, and left out.
    """
    position = begin
    rest = bytearray()
    is_skipping = False
    while chunk := os.pread(fd, _CHUNK, position):
        first = 0
        while (end := chunk.find(b"\n", first)) >= 0:
            rest += chunk[first:end]
            is_skipping |= len(rest) > MAX_LINE_BYTES
            first = end + 1
            yield position + first, None if is_skipping else bytes(rest)
            rest.clear()
            is_skipping = False
        rest += chunk[first:]
        if len(rest) > MAX_LINE_BYTES:
            is_skipping = True
            rest.clear()
        position += len(chunk)


def head_of(fd: int) -> str:
    """What tells this file from others: a hash of its first line, or of the beginning of it; "" while that is not whole."""
    data = os.pread(fd, _HEAD_BYTES, 0)
    end = data.find(b"\n")
    if end < 0 and len(data) < _HEAD_BYTES:
        return ""
    return _digest(data if end < 0 else data[: end + 1])


def mark_of(fd: int, offset: int) -> str:
    """What tells whether the file was rewritten: a hash of what stands right before the offset; "" at 0 and behind the file's end."""
    begin = max(0, offset - _MARK_BYTES)
    data = os.pread(fd, offset - begin, begin)
    return _digest(data) if data and len(data) == offset - begin else ""


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
