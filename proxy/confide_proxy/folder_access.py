"""Files below an open folder, so that no link on the way is followed.

On Linux and macOS an open folder is a descriptor, and no process can swap a folder on the way.
Windows has no such calls: an open folder is a path there, and a link or a junction is refused by a
look before each use.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confide_crypto import atomic, portable

OpenFolder = int | Path
"""A descriptor, or a path on Windows."""


def open_root(root: Path, flags: int = 0) -> OpenFolder:
    """Open a folder, which may be a link unless `flags` has `portable.NO_LINK`. Raises OSError."""
    if portable.HAS_DIR_FD:
        return os.open(root, os.O_RDONLY | portable.FOLDER | portable.CLOSED | flags)
    if not root.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(root))
    return root


def enter(parent: OpenFolder, name: str) -> OpenFolder:
    """Open a folder of an open folder, and close that. Raises OSError: there is none, or it is a
    link.
    """
    if isinstance(parent, Path):
        path = parent / name
        if _is_reparse_point(path):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        if not path.is_dir():
            code = errno.ENOTDIR if os.path.lexists(path) else errno.ENOENT
            raise OSError(code, os.strerror(code), str(path))
        return path
    deeper = os.open(name, os.O_RDONLY | portable.FOLDER | portable.NO_LINK | portable.CLOSED, dir_fd=parent)
    os.close(parent)
    return deeper


def close(parent: OpenFolder) -> None:
    """Close an open folder."""
    if isinstance(parent, int):
        os.close(parent)


def make(parent: OpenFolder, name: str) -> None:
    """Make a folder. Raises OSError."""
    if isinstance(parent, int):
        os.mkdir(name, dir_fd=parent)
    else:
        (parent / name).mkdir()


def open_file(parent: OpenFolder, name: str, flags: int, mode: int = 0o777) -> int:
    """Open a file that is no link; `flags` as of `os.open`. Raises OSError."""
    flags |= portable.NO_LINK | portable.CLOSED
    if isinstance(parent, int):
        return os.open(name, flags, mode, dir_fd=parent)
    path = parent / name
    if _is_reparse_point(path):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    if path.is_dir():  # Windows says "permission denied" of a folder
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return os.open(path, flags, mode)


def status(parent: OpenFolder, name: str) -> os.stat_result:
    """Return the status of a file, or of a link itself. Raises OSError."""
    if isinstance(parent, int):
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    return (parent / name).lstat()


def unlink(parent: OpenFolder, name: str) -> None:
    """Delete a file. Raises OSError."""
    if isinstance(parent, int):
        os.unlink(name, dir_fd=parent)
    else:
        (parent / name).unlink()


def name_new(parent: OpenFolder, part: str, name: str) -> None:
    """Give a file a second name that no file has. Raises FileExistsError, OSError."""
    if isinstance(parent, int):
        os.link(part, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
    else:
        (parent / name).hardlink_to(parent / part)


def replace(parent: OpenFolder, part: str, name: str) -> None:
    """Rename a file, in place of one that has the name. Raises OSError."""
    if isinstance(parent, int):
        os.replace(part, name, src_dir_fd=parent, dst_dir_fd=parent)
    else:
        (parent / part).replace(parent / name)


def sync(parent: OpenFolder) -> None:
    """Have the names in a folder on the disk on return, where the system can do that. Raises
    OSError.
    """
    if isinstance(parent, int):
        os.fsync(parent)
    else:
        atomic.sync(parent)


@contextmanager
def entries(parent: OpenFolder) -> Iterator[Iterator[os.DirEntry[str]]]:
    """List an open folder. Raises OSError."""
    with os.scandir(parent) as found:
        yield found


def _is_reparse_point(path: Path) -> bool:
    is_junction = getattr(path, "is_junction", None)  # from Python 3.12 on
    return path.is_symlink() or bool(is_junction and is_junction())
