"""Files that are there whole or not at all: written beside their place, and put in it by a rename.

All of Confide replaces files so. Nothing heavy is imported, since a hook of a client's is a process of its own.
"""

from __future__ import annotations

import contextlib
import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # to import it costs a hook a millisecond
    from collections.abc import Iterator
    from typing import BinaryIO


@contextlib.contextmanager
def replacing(
    path: str | os.PathLike[str], *, mode: int = 0o600, is_new: bool = False, is_kept: bool = True, prefix: str = "."
) -> Iterator[BinaryIO]:
    """Give a file to write, which has the place of `path` once the block has ended; after an error `path` is as it was.

    Args:
        mode: the file is made with, less the umask.
        is_new: nothing may be at `path`.
        is_kept: the file and its name are on the disk on return. Off for what nobody misses after a power cut.
        prefix: of its name until then, for folders where what a crash has left is found by it.

    Raises OSError; FileExistsError: something is at `path`, and `is_new`.
    """
    folder, name = os.path.split(os.fspath(path))
    part = os.path.join(folder, f"{prefix}{name}.{os.urandom(4).hex()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(part, flags, mode), "wb") as file:
            yield file
            if is_kept:
                file.flush()
                os.fsync(file.fileno())
        if is_new:
            os.link(part, path)  # unlike a rename, it fails where the name is taken
        else:
            os.replace(part, path)
    finally:
        with contextlib.suppress(OSError):  # it has its place by now, or the disk refuses this as well
            os.unlink(part)
    if is_kept:
        sync(folder or ".")


def write(path: str | os.PathLike[str], data: bytes, *, mode: int = 0o600, is_kept: bool = True) -> None:
    """Write a whole file, as `replacing`. Raises OSError."""
    with replacing(path, mode=mode, is_kept=is_kept) as file:
        file.write(data)


def sync(path: str | os.PathLike[str]) -> None:
    """Have a file, or the names in a folder, on the disk on return. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
