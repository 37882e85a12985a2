"""Access to files by their names in an open folder, so that no symbolic link on the way is
followed.

On Linux and macOS an open folder is a descriptor, and no process can replace a folder on the way.
Windows has no such calls. There an open folder is a path, and a check before each use refuses
symbolic links and junctions.
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
    """Open a folder. It may be a symbolic link, unless `flags` contains `portable.NO_LINK`. Raises
    OSError if it is no folder, or cannot be opened.
    """
    if portable.HAS_DIR_FD:
        return os.open(root, os.O_RDONLY | portable.FOLDER | portable.CLOSED | flags)
    if not root.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(root))
    return root


def enter(parent: OpenFolder, name: str) -> OpenFolder:
    """Open a folder in an open folder, and close that one. Raises OSError if there is no such
    folder, or if it is a symbolic link.
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
    """Create a folder in an open folder. Raises OSError if that fails."""
    if isinstance(parent, int):
        os.mkdir(name, dir_fd=parent)
    else:
        (parent / name).mkdir()


def open_file(parent: OpenFolder, name: str, flags: int, mode: int = 0o777) -> int:
    """Open a file in an open folder; `flags` are those of `os.open`. Raises OSError if that fails,
    or if the file is a symbolic link.
    """
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
    """Return the status of a file in an open folder, or of a symbolic link itself. Raises OSError
    if it does not exist.
    """
    if isinstance(parent, int):
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    return (parent / name).lstat()


def unlink(parent: OpenFolder, name: str) -> None:
    """Delete a file in an open folder. Raises OSError if that fails."""
    if isinstance(parent, int):
        os.unlink(name, dir_fd=parent)
    else:
        (parent / name).unlink()


def name_new(parent: OpenFolder, part: str, name: str) -> None:
    """Give the file `part` a second name in the same folder, as a hard link. Raises FileExistsError
    if a file has that name; OSError if it fails otherwise.
    """
    if isinstance(parent, int):
        os.link(part, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
    else:
        (parent / name).hardlink_to(parent / part)


def replace(parent: OpenFolder, part: str, name: str) -> None:
    """Rename the file `part`, replacing a file that has the new name. Raises OSError if that fails."""
    if isinstance(parent, int):
        os.replace(part, name, src_dir_fd=parent, dst_dir_fd=parent)
    else:
        (parent / part).replace(parent / name)


def sync(parent: OpenFolder) -> None:
    """Write the names in an open folder to the disk before returning, on systems that can do that.
    Raises OSError if it fails.
    """
    if isinstance(parent, int):
        os.fsync(parent)
    else:
        atomic.sync(parent)


@contextmanager
def entries(parent: OpenFolder) -> Iterator[Iterator[os.DirEntry[str]]]:
    """List an open folder: yield an iterator over its entries, for a `with` block. Raises OSError
    if the folder cannot be read.
    """
    with os.scandir(parent) as found:
        yield found


def _is_reparse_point(path: Path) -> bool:
    is_junction = getattr(path, "is_junction", None)  # from Python 3.12 on
    return path.is_symlink() or bool(is_junction and is_junction())
