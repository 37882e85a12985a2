"""What lies below a folder, as its disk spells it, and the way down to it on which no symlink is followed. No file is opened here."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from confide_memory.documents import MAX_DEPTH, TOOL_FOLDERS


def fixed_part(glob: str) -> str:
    """The folder of a glob above its first wildcard, so that a walk starts as deep as it can."""
    fixed: list[str] = []
    for part in PurePosixPath(glob).parts[:-1]:
        if any(c in part for c in "*?[") or part in ("..", "/"):
            break
        fixed.append(part)
    return "/".join(fixed)


def listed(root: Path, folder: str, *, only: str | None = None) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """What is in a folder of `root`, by path; nothing where it cannot be listed."""
    try:
        with os.scandir(root / folder) as entries:
            for entry in sorted(entries, key=lambda e: e.name):
                if only is None or entry.name == only:
                    yield (f"{folder}/{entry.name}" if folder else entry.name), entry
    except OSError:
        return  # not there, or not ours to list: nothing to walk


def tree(root: Path, folder: str, depth: int) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """All that is below it but folders, hidden folders and what tools make left out. Symlinks are not followed."""
    if depth > MAX_DEPTH or (folder and (root / folder).is_symlink()):
        return
    for path, entry in listed(root, folder):
        if entry.is_dir(follow_symlinks=False):
            if not entry.name.startswith(".") and entry.name not in TOOL_FOLDERS:
                yield from tree(root, path, depth + 1)
        else:
            yield path, entry


@contextmanager
def descended(root: Path, folders: Iterable[str], *, create: bool = False, flags: int = 0) -> Iterator[int]:
    """A descriptor of the folder that is reached from `root` by these names, one after the other.

    Args:
        create: make what is not there; the root is never made.
        flags: for the root alone, which may be a link otherwise.

    Raises OSError: one is not there, no folder, or a symlink.
    """
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | flags)
    try:
        for folder in folders:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(folder, dir_fd=fd)
            deeper = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            os.close(fd)
            fd = deeper
        yield fd
    finally:
        os.close(fd)
