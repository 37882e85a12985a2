"""The memory as this machine has it: its project's files and the global ones, with what waits in the journal in its place.

What is searched is kept in memory while the files stay as they are, and given back some time after it was last needed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from confide_memory.errors import NotFoundError
from confide_memory.markdown import append_text, line_headings, replace_section
from confide_proxy.errors import FolderError
from confide_proxy.offline.journal import Entry
from confide_proxy.offline.local_index import LocalIndex, Name, Piece
from confide_proxy.sync.folder import Folder

READ_BUDGET_S: Final = 6.0
"""How long one search may read files; what is left is read by the next."""


@dataclass(frozen=True, slots=True)
class Document:
    """A document as it will be once the daemon has what waits.

    Attributes:
        mtime: of the file, in seconds since 1970; of the last store that waits, where one does.
        waiting: how many stores that wait are in the text.
    """

    project: str
    path: str
    text: str
    mtime: float
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Match:
    """A piece that was found."""

    project: str
    path: str
    piece: Piece
    score: float
    mtime: float
    is_waiting: bool


@dataclass(slots=True)
class _Known:
    """A document in the index."""

    stamp: tuple[Any, ...]
    mtime: float
    waiting: int


@dataclass(slots=True)
class View:
    """How whole the answer is.

    Attributes:
        waiting: stores that wait, in the documents that were looked at.
        unread: files that could not be read, or not in time.
    """

    waiting: int = 0
    unread: int = 0


class Queue(Protocol):
    """What waits for the daemon."""

    def waiting(self, targets: frozenset[str]) -> list[Entry]:
        """As `Journal.waiting`."""
        ...


class LocalMemory:
    """The folders of one session. Methods block; any thread may call them."""

    def __init__(self, folders: Iterable[Folder], journal: Queue) -> None:
        self.folders = {folder.project: folder for folder in folders}
        self._journal = journal
        self._index: LocalIndex | None = None
        self._known: dict[Name, _Known] = {}
        self._lock = threading.Lock()

    def read(self, project: str, path: str) -> Document | None:
        """One document, or None if there is none.

        Raises:
            FolderError: the file cannot be read, or is not one of memory.
        """
        content = self.folders[project].read(path)
        waiting = [entry for entry in self._waiting() if (entry.target, entry.path) == (project, path)]
        if content is None and not waiting:
            return None
        text = _with(content.text if content else "", waiting)
        mtime = waiting[-1].at if waiting else content.mtime_ns / 1e9 if content else 0.0
        return Document(project, path, text, mtime, len(waiting))

    def paths(self, project: str) -> list[str]:
        """The paths of the documents of one project."""
        files = {found.path for found in self.folders[project].walk()}
        return sorted(files | {entry.path for entry in self._waiting() if entry.target == project})

    def search(self, match: str, *, least: float) -> tuple[list[Match], View]:
        """All pieces that match with a score of at least so much, best first.

        Raises:
            OfflineError: this Python cannot search.
            FolderError: a folder holds too many files.
        """
        with self._lock:
            if self._index is None:
                self._index = LocalIndex()
                self._known.clear()
            view = self._refresh(self._index)
            found = []
            for (project, path), piece, score in self._index.search(match):
                if score < least:
                    break
                known = self._known[project, path]
                found.append(Match(project, path, piece, score, known.mtime, known.waiting > 0))
            return found, view

    def close(self) -> bool:
        """Let go of the index, if there is one; the next search makes it anew."""
        with self._lock:
            if self._index is None:
                return False
            self._index.close()
            self._index = None
            self._known.clear()
            return True

    def _refresh(self, index: LocalIndex) -> View:
        """Bring the index up to what the files and the journal hold."""
        deadline = time.monotonic() + READ_BUDGET_S
        waiting: dict[Name, list[Entry]] = {}
        for entry in self._waiting():
            waiting.setdefault((entry.target, entry.path), []).append(entry)
        stamps: dict[Name, tuple[Any, ...]] = {
            name: (None, *(entry.id for entry in those)) for name, those in waiting.items()
        }
        for project, folder in self.folders.items():
            mark = folder.mark
            for found in folder.walk():
                name = (project, found.path)
                queued = (entry.id for entry in waiting.get(name, ()))
                stamps[name] = ((found.size, found.mtime_ns, mark), *queued)
        for name in [name for name in self._known if name not in stamps]:
            index.remove(name)
            del self._known[name]
        view = View(waiting=sum(map(len, waiting.values())))
        for name, stamp in stamps.items():
            known = self._known.get(name)
            if known is not None and known.stamp == stamp:
                continue
            if time.monotonic() > deadline:
                view.unread += 1
                continue
            try:
                content = self.folders[name[0]].read(name[1])
            except FolderError:
                view.unread += 1
                continue
            those = waiting.get(name, [])
            if content is None and not those:
                continue  # gone since the folder was listed
            index.put(name, _with(content.text if content else "", those))
            mtime = those[-1].at if those else content.mtime_ns / 1e9 if content else 0.0
            self._known[name] = _Known(stamp, mtime, len(those))
        return view

    def _waiting(self) -> list[Entry]:
        # Other changes are of notes as the daemon has them, by their ids.
        return [entry for entry in self._journal.waiting(frozenset(self.folders)) if entry.tool == "memory_store"]


def _with(text: str, waiting: list[Entry]) -> str:
    """The text as the stores that wait will make it."""
    for entry in waiting:
        content, heading = str(entry.arguments.get("content", "")), entry.arguments.get("heading")
        heading = heading if isinstance(heading, str) else None
        if entry.arguments.get("mode") != "replace":
            text = append_text(text, content, heading=heading or None, read=line_headings)
        elif heading is None:
            text = content if content.endswith("\n") or not content else content + "\n"
        else:
            with suppress(NotFoundError):  # the daemon refuses it, and the text stays
                text = replace_section(text, content, heading=heading, read=line_headings)
    return text
