"""The files of an import: only regular files, never through a symlink, and at most a fixed number.

Files that a `.confide.toml` in a folder above excludes are never read. A file has the same name on
every device, so that its memories are recognised whichever path the user gave.
"""

from __future__ import annotations

import errno
import os
import stat
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import BinaryIO

from confide_crypto import portable
from confide_memory import note_names
from confide_proxy.errors import UnreadableError
from confide_proxy.sync import project
from confide_proxy.sync.walk import FILE, Narrowing
from confide_transfer.local.reader import MAX_DEPTH, MAX_FILE_BYTES, MAX_FILES, Losses, MemoryRecord

PROBLEM = f"is excluded by {FILE}"
HEAD_BYTES = 4096
_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "venv", "site-packages", "vendor"})
SHOWN_FOLDERS = frozenset({".claude"})
"""Hidden folders that are searched."""


def open_plain(path: Path, *, limit: int = MAX_FILE_BYTES) -> BinaryIO:
    """Open a file for reading.

    Raise UnreadableError if it is a symlink, a pipe or anything else but a regular file, is larger
    than `limit` bytes, is not readable, or is excluded by its project.
    """
    if is_excluded(path):
        raise UnreadableError(path, PROBLEM)
    try:
        # Non-blocking, so that a pipe without a writer is detected rather than waited for.
        fd = os.open(path, os.O_RDONLY | portable.NO_LINK | portable.NO_WAIT | portable.CLOSED)
    except OSError as error:
        problem = "is a symlink" if error.errno == errno.ELOOP else f"cannot be opened: {error.strerror}"
        raise UnreadableError(path, problem) from error
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise UnreadableError(path, "is no regular file")
    if status.st_size > limit:
        os.close(fd)
        raise _too_large(path, limit)
    return open(fd, "rb")


def _too_large(path: Path, limit: int) -> UnreadableError:
    return UnreadableError(path, f"is larger than {limit // 2**20:,} MiB", hint="split it and import the parts")


def read_text(path: Path, *, limit: int = MAX_FILE_BYTES) -> str:
    """Read a file as text without a byte order mark. Raise UnreadableError if it is no regular
    file, too large, excluded, not readable, or not UTF-8 text.
    """
    try:
        with open_plain(path, limit=limit) as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise UnreadableError(path, f"cannot be read: {error.strerror}") from error
    if len(data) > limit:  # it grew since its size was read
        raise _too_large(path, limit)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableError(path, f"is not UTF-8 text (byte {error.start})", hint="save it as UTF-8") from None
    if "\0" in text:
        raise UnreadableError(path, "holds NUL bytes, so it is no text")
    return text


def head(path: Path, size: int = HEAD_BYTES) -> bytes:
    """Return the first bytes of a regular file, without a byte order mark; b"" for anything else,
    and on every error.
    """
    try:
        with open_plain(path, limit=2**63) as file:
            return file.read(size).removeprefix(BOM_UTF8)
    except (UnreadableError, OSError, ValueError):
        return b""


def is_folder(path: Path) -> bool:
    """Return True if the path is a folder and not a symlink to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False


def files_below(root: Path, is_wanted: Callable[[str], bool], losses: Losses) -> Iterator[Path]:
    """Yield the files of a tree whose names are wanted, sorted, folder by folder; report symlinks
    to `losses`.

    Hidden files, hidden folders (except `.claude`) and folders of installed packages are skipped.

    Raise UnreadableError if there are more than `MAX_FILES`.
    """
    for count, path in enumerate(_tree(root, root, is_wanted, losses, 1), 1):
        if count > MAX_FILES:
            raise UnreadableError(root, f"holds more than {MAX_FILES:,} files", hint="name a folder further down")
        yield path


def _tree(root: Path, folder: Path, is_wanted: Callable[[str], bool], losses: Losses, depth: int) -> Iterator[Path]:
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        losses.add(_below(root, folder), f"cannot be listed: {error.strerror}")
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if entry.name in SHOWN_FOLDERS or not (entry.name.startswith(".") or entry.name in _SKIPPED_FOLDERS):
                if depth >= MAX_DEPTH:
                    losses.add(_below(root, Path(entry.path)), f"is more than {MAX_DEPTH} folders deep")
                else:
                    yield from _tree(root, Path(entry.path), is_wanted, losses, depth + 1)
        elif is_wanted(entry.name) and not entry.name.startswith("."):
            if entry.is_symlink():
                losses.add(_below(root, Path(entry.path)), "is a symlink")
            else:
                yield Path(entry.path)


def _below(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()


def is_excluded(path: Path) -> bool:
    """Return True if a project's `.confide.toml` in a folder above excludes this file or folder."""
    whole = Path(os.path.abspath(path))  # noqa: PTH100 - `Path.absolute` leaves ".." in
    return any(
        _narrowing(folder).excludes(whole.relative_to(folder).as_posix())
        for folder in whole.parents
        if os.path.lexists(folder / FILE)
    )


_narrowing = lru_cache(256)(Narrowing)


def prefix_origins(records: Iterator[MemoryRecord], place: str) -> Iterator[MemoryRecord]:
    """Put the name of the store before the origins of its records, since other stores use the same
    names, such as `index` or `user`.
    """
    for record in records:
        named = (
            (kind, other if note_names.ID.fullmatch(other) else f"{place}#{other}") for kind, other in record.relations
        )
        yield replace(record, origin=f"{place}#{record.origin}", relations=tuple(named))


def name_of(path: Path) -> str:
    """Return the path of a file or folder relative to its project, else to the home folder, else
    the absolute path.
    """
    file = path.parent.resolve() / path.name
    for folder in file.parents:
        if (folder / ".git").exists():
            return f"{_project_of(folder).name}/{file.relative_to(folder).as_posix()}"
    home = Path.home().resolve()
    return f"~/{file.relative_to(home).as_posix()}" if home in file.parents else file.as_posix()


_project_of = cache(project.identify)
