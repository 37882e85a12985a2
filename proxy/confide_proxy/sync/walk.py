"""Which names are those of memory files, and what lies below a folder. Nothing is opened here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

MEMORY_FILES = ("MEMORY.md", "memory.md")
MEMORY_FOLDER = "memory"
MAX_DEPTH = 32
_MAX_PATH_BYTES = 512
_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__"})


def is_memory(path: str) -> bool:
    """Whether a file of that name is one of memory."""
    parts = PurePosixPath(path).parts
    return is_plain(path) and (path in MEMORY_FILES or (len(parts) > 1 and parts[0] == MEMORY_FOLDER))


def is_plain(path: str) -> bool:
    """Whether a path is one that every machine can have: markdown, not hidden, not too long or too deep."""
    parts = path.split("/")
    return (
        path.endswith(".md")
        and 0 < len(path.encode("utf-8", "surrogateescape")) <= _MAX_PATH_BYTES
        and "\\" not in path
        and path.isprintable()
        and len(parts) <= MAX_DEPTH
        and all(part and not part.startswith(".") for part in parts)
        and not any(folder in _SKIPPED_FOLDERS or folder.endswith(".md") for folder in parts[:-1])
    )


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
            if not entry.name.startswith(".") and entry.name not in _SKIPPED_FOLDERS:
                yield from tree(root, path, depth + 1)
        else:
            yield path, entry
