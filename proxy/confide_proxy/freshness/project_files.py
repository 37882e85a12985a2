"""Reading of a project's own files for the ties of notes. It follows no links, never waits for a
pipe, and reads no file that is too large.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from pathlib import Path
from typing import Final, NamedTuple

from confide_crypto import portable
from confide_proxy import folder_access

MAX_BYTES: Final = 1024 * 1024
SETTLED_NS: Final = 2_000_000_000
"""Nanoseconds after a change in which another one may leave the same times: a FAT disk counts two
seconds.
"""
_LINK: Final = frozenset({errno.ELOOP, errno.EMLINK})
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR})

TOO_LARGE: Final = f"larger than {MAX_BYTES // 2**20} MiB"


class UncheckedError(Exception):
    """A file of the project exists but cannot be checked; the message gives the reason."""


class FileStamp(NamedTuple):
    """Metadata of a file, by which a change is noticed without reading it."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @property
    def is_settled(self) -> bool:
        """Return True if every further change would alter this metadata: the last change is not so
        recent that a second one could have the same time.
        """
        return max(self.mtime_ns, self.ctime_ns) + SETTLED_NS < time.time_ns()


class OpenedFile:
    """A regular file of a project, open for reading; use it with `with`.

    Attributes:
        stamp: the file's metadata when it was opened, by which a change is noticed.
    """

    def __init__(self, root: Path, path: str, *, is_memory: bool = False) -> None:
        """Open a file by its path below `root`; one of the memory may be in a repository of its own.
        Raises FileNotFoundError: it does not exist;
        UncheckedError: it is not a plain file of this project, too large, or cannot be opened.
        """
        try:
            self._fd = _open_folder(root, path.split("/"), may_be_nested=is_memory)
        except OSError as error:
            if error.errno in _ABSENT:
                raise FileNotFoundError(path) from None
            why = "a link" if error.errno in _LINK else error.strerror or "not readable"
            raise UncheckedError(why) from None
        status = os.fstat(self._fd)
        why = "" if stat.S_ISREG(status.st_mode) else "not a file"
        if not why and status.st_size > MAX_BYTES:
            why = TOO_LARGE
        if why:
            os.close(self._fd)
            raise UncheckedError(why)
        self.stamp = FileStamp(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    def __enter__(self) -> OpenedFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def read(self) -> bytes:
        """Return the contents. Raises UncheckedError if the disk fails, or if the file grew too
        large.
        """
        try:
            data = os.read(self._fd, MAX_BYTES + 1)
            while data and len(data) <= MAX_BYTES and (more := os.read(self._fd, MAX_BYTES + 1 - len(data))):
                data += more
        except OSError as error:
            raise UncheckedError(error.strerror or "not readable") from None
        if len(data) > MAX_BYTES:
            raise UncheckedError(TOO_LARGE)
        return data


def _open_folder(root: Path, parts: list[str], *, may_be_nested: bool) -> int:
    parent = folder_access.open_root(root)
    try:
        for name in parts[:-1]:
            parent = folder_access.enter(parent, name)
            if not may_be_nested and _has_git(parent):
                raise UncheckedError("in another repository")
        flags = os.O_RDONLY | portable.NO_WAIT
        return folder_access.open_file(parent, parts[-1], flags)
    finally:
        folder_access.close(parent)


def _has_git(parent: folder_access.OpenFolder) -> bool:
    try:
        folder_access.status(parent, ".git")
    except OSError:
        return False
    return True
