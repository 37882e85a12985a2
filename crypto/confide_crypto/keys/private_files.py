"""Files and folders that are nobody else's business: how they are made, and when they are refused (PROTOCOL.md 2.5).

ssh's rule: a secret that others could have read or replaced is not used, however convenient that would be.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from confide_crypto import atomic
from confide_crypto.errors import EXIT_STORAGE, KeyFileError

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
MAX_PRIVATE_FILE: Final = 64 * 1024
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


def make_private_dir(path: Path) -> None:
    """Make a folder for this user alone (0700), and those above it that are not there, or check that it is one.

    Raises KeyFileError: it belongs to somebody else, others can enter it, or it cannot be made.
    """
    with _able(path, "be made"):
        make_closed_dirs(path)
        status = path.stat()
    _check_dir(path, status)


def make_closed_dirs(path: Path) -> None:
    """Make a folder, and those above it that are not there, for this user alone (0700). Raises OSError.

    Unlike `mkdir(parents=True)`, which leaves those above open to others; one of them may be a private folder itself.
    """
    for folder in reversed([path, *(each for each in path.parents if not each.exists())]):
        folder.mkdir(mode=0o700, exist_ok=True)


def check_private_file(path: Path) -> None:
    """Refuse a file that others could have read or replaced.

    Raises KeyFileError: it is a link or no plain file, belongs to somebody else, or its mode has group or other bits.
    """
    with _able(path, "be read"):
        status = path.lstat()
    _check_file(path, status)


def read_private_file(path: Path, *, most_bytes: int = MAX_PRIVATE_FILE) -> bytes:
    """The content of a file that passes `check_private_file`, judged on the open descriptor so that nobody can swap it in between.

    Raises KeyFileError: it does not pass, or it cannot be read.
    """
    check_private_file(path)
    with _able(path, "be read"):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            _check_file(path, os.fstat(descriptor))
            data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise KeyFileError(path, "is far too large for what it should hold")
    return data


def write_private_file(path: Path, data: bytes, *, replace: bool = False) -> None:
    """Write a file of mode 0600 whole or not at all, in a folder of mode 0700, and have it on the disk on return.

    Raises FileExistsError: it is there already and `replace` is off; KeyFileError: it cannot be written.
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
    """Refuse a folder that others can enter: whoever can write to it can put their own files in the place of ours.

    Raises KeyFileError: it is no folder, belongs to somebody else, or its mode has group or other bits.
    """
    with _able(path, "be read"):
        status = path.stat()
    _check_dir(path, status)


def rename_private_file(path: Path, target: Path) -> None:
    """Put a file in the place of another one in the same folder, and have that on the disk on return.

    Raises KeyFileError: it cannot be done.
    """
    with _able(path, "be renamed"):
        path.replace(target)
        atomic.sync(target.parent)


def remove_private_file(path: Path) -> None:
    """Delete a file, where there is one, and have that on the disk on return. Raises KeyFileError: it cannot be deleted."""
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
    if status.st_uid != os.geteuid():
        mend = f"if you know it as yours: sudo chown $(id -un) {path}; else move it away"
        raise KeyFileError(path, "belongs to another user", hint=mend)
    if status.st_mode & _OTHERS:
        mode = stat.S_IMODE(status.st_mode)
        raise KeyFileError(path, f"is open to other users (mode {mode:04o})", hint=hint)


@contextlib.contextmanager
def _able(path: Path, verb: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise cannot(path, verb, error) from error


def cannot(path: Path, verb: str, error: OSError) -> KeyFileError:
    """What to raise where a private file cannot be used; `verb` is as in "be written"."""
    failure = KeyFileError(path, f"cannot {verb}: {(error.strerror or type(error).__name__).lower()}")
    if error.errno in _FULL:
        failure.exit_code = EXIT_STORAGE
    return failure
