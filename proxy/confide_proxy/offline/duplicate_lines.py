"""Search for a text in this device's memory files, so that a line that is stored twice is kept once
(docs/notes.md).

Files are read without sealing, with credentials in clear, since nothing of them is sent. It costs
as much as reading the files, newest first, up to a limit; the daemon compares notes with fields by
itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confide_proxy.errors import FolderError
from confide_proxy.sync.folder import Folder

if TYPE_CHECKING:
    from confide_proxy.offline.journal import QueuedCall

MAX_CHARS: Final = 16_000
"""Longest text to search for, in characters: a longer one is a document, which is hardly typed
twice.
"""
MAX_FILES: Final = 4000
MAX_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LinePosition:
    """A line in a document, counted from 1; 0 for a store that is still queued."""

    project: str
    path: str
    line: int


def find(
    content: str, folders: Iterable[Folder], waiting: Iterable[QueuedCall], *, path: str | None = None
) -> LinePosition | None:
    """Return the first place where all lines of `content` follow each other, list marks ignored;
    only in the file `path` if that is given.

    Raises FolderError: a folder holds too many files.
    """
    wanted = _lines(content)
    if not any(wanted) or len(content) > MAX_CHARS:
        return None
    for entry in waiting:
        given = entry.arguments
        if (
            entry.tool == "memory_store"
            and path in (None, entry.path)
            and _lines(str(given.get("content", ""))) == wanted
        ):
            return LinePosition(entry.target, entry.path, 0)
    for folder in folders:
        if found := _in_folder(folder, wanted, path):
            return found
    return None


def _in_folder(folder: Folder, wanted: list[str], path: str | None) -> LinePosition | None:
    files = sorted(folder.walk(), key=lambda file: file.mtime_ns, reverse=True)
    spent = 0
    for file in files[:MAX_FILES]:
        if path not in (None, file.path):
            continue
        spent += file.size
        if spent > MAX_BYTES:
            return None
        try:
            content = folder.read(file.path)
        except FolderError:
            continue  # a comparison reports it
        if content is None or wanted[0] not in content.text:
            continue
        lines = _lines(content.text)
        for start in range(len(lines) - len(wanted) + 1):
            if lines[start : start + len(wanted)] == wanted:
                return LinePosition(folder.project, file.path, start + 1)
    return None


def _lines(text: str) -> list[str]:
    """Return the lines without list marks."""
    return [line.strip().removeprefix("- ").removeprefix("* ").strip() for line in text.strip("\n").split("\n")]
