"""Atomic file writes: write to a temporary file, then rename it over the target.

All of Confide replaces files this way. The module imports nothing heavy, because each hook of a
client runs it in a new process.
"""

from __future__ import annotations

import contextlib
import os

from confide_crypto import portable

TYPE_CHECKING = False
if TYPE_CHECKING:  # the import would cost a hook a millisecond
    from collections.abc import Iterator
    from typing import BinaryIO


@contextlib.contextmanager
def replacing(
    path: str | os.PathLike[str], *, mode: int = 0o600, is_new: bool = False, is_kept: bool = True, prefix: str = "."
) -> Iterator[BinaryIO]:
    """Yield a file to write. When the `with` block ends, it replaces the file at `path`; after an
    error, `path` is unchanged.

    Args:
        mode: mode of the new file, less the umask.
        is_new: True to fail if `path` exists.
        is_kept: True to sync the file and its name to disk before returning. Turn it off for files
            whose loss in a power cut does not matter.
        prefix: prefix of the temporary file's name, so that leftovers of a crash can be recognized.

    Raises FileExistsError if `path` exists and `is_new` is set; OSError if the file cannot be
    written.
    """
    folder, name = os.path.split(os.fspath(path))
    part = os.path.join(folder, f"{prefix}{name}.{os.urandom(4).hex()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | portable.NO_LINK | portable.CLOSED
    try:
        with open(os.open(part, flags, mode), "wb") as file:
            yield file
            if is_kept:
                file.flush()
                os.fsync(file.fileno())
        if is_new:
            os.link(part, path)  # unlike a rename, a link fails if the name exists
        else:
            os.replace(part, path)
    finally:
        with contextlib.suppress(OSError):  # already renamed, or the disk refuses this too
            os.unlink(part)
    if is_kept:
        sync(folder or ".")


def write(path: str | os.PathLike[str], data: bytes, *, mode: int = 0o600, is_kept: bool = True) -> None:
    """Replace the file at `path` with `data` atomically. The arguments are as for `replacing`.
    Raises OSError if the file cannot be written.
    """
    with replacing(path, mode=mode, is_kept=is_kept) as file:
        file.write(data)


def sync(path: str | os.PathLike[str]) -> None:
    """Write a file, or the list of names in a folder, from the system's cache to disk. Raises
    OSError if that fails.
    """
    if not portable.HAS_DIR_FD and os.path.isdir(path):
        return  # Windows opens no folder, and writes its names with the file
    # Windows flushes only what may be written.
    descriptor = os.open(path, (os.O_RDONLY if portable.HAS_DIR_FD else os.O_RDWR) | portable.CLOSED)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
