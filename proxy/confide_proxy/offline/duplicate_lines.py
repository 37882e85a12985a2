"""Search this device's memory files for a text, so that a line that an agent stores twice is kept
only once (docs/notes.md).

Files are read with their credentials in clear, since nothing of them is sent. The cost is that of
reading the files, newest first, up to a limit. The daemon itself compares notes that have fields.
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
    """The position of a line in a document. `line` counts from 1; 0 means that the text is still in
    a queued call.
    """

    project: str
    path: str
    line: int


def find(
    content: str, folders: Iterable[Folder], waiting: Iterable[QueuedCall], *, path: str | None = None
) -> LinePosition | None:
    """Return the first position at which all lines of `content` follow each other; None if there is
    none. List marks are ignored. If `path` is given, only that file is searched.

    Raises FolderError if a folder contains too many files.
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
