"""Private files and folders: creates them for this user alone, and refuses those that other users
can access (PROTOCOL.md 2.5).

The rule is ssh's: a secret that other users could have read or replaced is not used.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from confide_crypto import atomic, portable
from confide_crypto.errors import EXIT_STORAGE, KeyFileError

MAX_PRIVATE_FILE: Final = 64 * 1024
_NOT_WRITABLE: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


def make_private_dir(path: Path) -> None:
    """Create a folder and its missing parents for this user alone (0700), or check an existing
    folder.

    Raises KeyFileError if another user owns it, others can enter it, or it cannot be created.
    """
    try:
        make_closed_dirs(path)
        status = path.stat()
    except OSError as error:
        failure = cannot(path, "be made", error)
        if error.errno in _NOT_WRITABLE:
            above = next((each for each in path.parents if os.path.lexists(each)), path)
            failure.hint = f"the folder above it must be yours, and writable: ls -ld {shlex.quote(str(above))}"
        raise failure from error
    _check_dir(path, status)


def make_closed_dirs(path: Path) -> None:
    """Create a folder and its missing parents, all for this user alone (0700). Raises OSError.

    `mkdir(parents=True)` would make the parents accessible to others, and a parent may be a private
    folder, too.
    """
    for folder in reversed([path, *(each for each in path.parents if not each.exists())]):
        folder.mkdir(mode=0o700, exist_ok=True)


def check_private_file(path: Path) -> None:
    """Check that other users could neither have read nor replaced a file.

    Raises KeyFileError if it is a link or not a regular file, another user owns it, or its mode has
    group or other bits.
    """
    with _able(path, "be read"):
        status = path.lstat()
    _check_file(path, status)


def read_private_file(path: Path, *, most_bytes: int = MAX_PRIVATE_FILE) -> bytes:
    """Return the content of a file that passes `check_private_file`.

    The check is repeated on the open descriptor, so that the file cannot be swapped between check
    and read.

    Raises KeyFileError if the file does not pass, cannot be read, or has more than `most_bytes`.
    """
    check_private_file(path)
    with _able(path, "be read"):
        descriptor = os.open(path, os.O_RDONLY | portable.NO_LINK | portable.CLOSED)
        with open(descriptor, "rb") as file:
            _check_file(path, os.fstat(descriptor))
            data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise KeyFileError(path, "is far too large for what it should hold")
    return data


def write_private_file(path: Path, data: bytes, *, replace: bool = False) -> None:
    """Write a file of mode 0600 atomically into a folder of mode 0700, and sync it to disk.

    Raises FileExistsError if the file exists and `replace` is off; KeyFileError if it cannot be
    written.
    """
    make_private_dir(path.parent)
    try:
        with atomic.replacing(path, is_new=not replace) as file:
            file.write(data)
    except FileExistsError:
        raise
    except OSError as error:
        raise cannot(path, "be written", error) from error


def check_private_dir(path: Path) -> None:
    """Check that other users cannot enter a folder, since they could replace its files.

    Raises KeyFileError if it is not a folder, another user owns it, or its mode has group or other
    bits.
    """
    with _able(path, "be read"):
        status = path.stat()
    _check_dir(path, status)


def rename_private_file(path: Path, target: Path) -> None:
    """Rename a file over another one in the same folder, and sync that to disk.

    Raises KeyFileError if the rename fails.
    """
    with _able(path, "be renamed"):
        path.replace(target)
        atomic.sync(target.parent)


def remove_private_file(path: Path) -> None:
    """Delete a file if it exists, and sync that to disk. Raises KeyFileError if it cannot be
    deleted.
    """
    with _able(path, "be deleted"), contextlib.suppress(FileNotFoundError):
        path.unlink()
        atomic.sync(path.parent)


def _check_dir(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISDIR(status.st_mode):
        raise KeyFileError(path, "is not a folder", hint=f"move it away: mv {path} {path}.old")
    _check_owner_and_mode(path, status, hint=f"chmod 700 {path}")


def _check_file(path: Path, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise KeyFileError(path, "is a link, so it could be swapped", hint="put the file itself in its place")
    if not stat.S_ISREG(status.st_mode):
        raise KeyFileError(path, "is not a plain file", hint=f"move it away: mv {path} {path}.old")
    _check_owner_and_mode(path, status, hint=f"chmod 600 {path}, and if others could have read it make a new one")


def _check_owner_and_mode(path: Path, status: os.stat_result, *, hint: str) -> None:
    if status.st_uid != portable.user():
        mend = f"if you know it as yours: sudo chown $(id -un) {path}; else move it away"
        raise KeyFileError(path, "belongs to another user", hint=mend)
    if status.st_mode & portable.OTHERS:
        mode = stat.S_IMODE(status.st_mode)
        raise KeyFileError(path, f"is open to other users (mode {mode:04o})", hint=hint)


@contextlib.contextmanager
def _able(path: Path, verb: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise cannot(path, verb, error) from error


def cannot(path: Path, verb: str, error: OSError) -> KeyFileError:
    """Return the error for a private file that cannot be used. `verb` says what failed, such as "be
    written".
    """
    failure = KeyFileError(path, f"cannot {verb}: {(error.strerror or type(error).__name__).lower()}")
    if error.errno in _FULL:
        failure.exit_code = EXIT_STORAGE
    return failure
