"""How a file gets its place in a folder: at once, and never over what somebody has just written there.

Folders are descriptors here, so that no link on the way to them leads elsewhere (`folder`).
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from confide_proxy.errors import ChangedMeanwhileError

if TYPE_CHECKING:
    from confide_proxy.folder import Content

_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS})
"""How a file system without hard links (FAT, some network mounts) refuses one."""


def put_in_place(part: str, name: str, parent: int, path: str, over: Content | None) -> None:
    """Give the file `part` of the folder `parent` the name `name`, in place of `over`; None where no file may be.

    Raises:
        ChangedMeanwhileError: the file is no longer as it was read, or there is one.
        OSError: the disk refuses.
    """
    try:
        if over is None:
            # Unlike a rename, it fails where somebody has just made the file.
            os.link(part, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
            return
        # Between this look and the rename lie microseconds, not the milliseconds that the write and its fsync took.
        check_unchanged(name, parent, path, over)
    except (FileExistsError, FileNotFoundError):
        raise ChangedMeanwhileError(path) from None
    except OSError as error:
        if over is not None or error.errno not in _NO_LINKS:
            raise
    os.rename(part, name, src_dir_fd=parent, dst_dir_fd=parent)


def check_unchanged(name: str, parent: int, path: str, over: Content) -> None:
    """Look whether a file is as it was read. Raises ChangedMeanwhileError."""
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if (status.st_size, status.st_mtime_ns) != (over.size, over.mtime_ns):
        raise ChangedMeanwhileError(path)


def is_spelled_so(name: str, parent: int, fd: int) -> bool:
    """Whether an open file has this very name: a disk that does not tell upper from lower case finds it by others as well."""
    try:
        other = os.stat(name.swapcase(), dir_fd=parent, follow_symlinks=False)
    except OSError:
        return True
    if not os.path.samestat(other, os.fstat(fd)):
        return True
    with os.scandir(parent) as entries:
        return any(entry.name == name for entry in entries)


def is_alive(pid: str) -> bool:
    """Whether a process of this machine has that number."""
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def mode_of(name: str, parent: int) -> int:
    """The permissions that a file has, or a new one gets."""
    try:
        return stat.S_IMODE(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return 0o644
