"""The ties of a session's notes to the project's files. The code for them is loaded at the first
call that needs it, so that a session starts without parsers and threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from confide_memory.documents import is_note

if TYPE_CHECKING:
    from confide_proxy.freshness.tied_notes import TiedNotes
    from confide_proxy.sealing.context import SessionSealing

MARKED: Final = frozenset({"memory_search", "memory_list", "memory_read", "memory_get"})
"""Tools whose results get marks."""
UNASKED_S: Final = 0.05
"""Seconds for the verdicts on what an agent gets without asking; what takes longer is unchecked."""
_UNKNOWN: Final = "warning: it could not be checked which of these notes are still true of the files here"


class TieMark(NamedTuple):
    """The mark that an agent sees at a note that is tied to files.

    Attributes:
        text: the mark; "" if nothing that the note is about has changed.
        is_gone: True if nothing that the note is about exists any more, so that the note is only
            shown if an agent searches.
    """

    text: str
    is_gone: bool


class LateTies:
    """The notes of one project that are tied to files. All methods block."""

    def __init__(self, root: Path, project: str, sealing: SessionSealing) -> None:
        """`root`: the project's folder on this device."""
        self._root = root
        self._project = project
        self._sealing = sealing
        self._notes: TiedNotes | None = None
        self._lock = threading.Lock()

    @property
    def notes(self) -> TiedNotes:
        """The project's tied notes; the first use loads their module."""
        with self._lock:
            if self._notes is None:
                from confide_proxy.freshness.note_ties import ProjectTies
                from confide_proxy.freshness.tied_notes import TiedNotes

                keyring = self._sealing.keyring
                ties = ProjectTies(self._root, lambda: keyring.keys or keyring.last_keys)
                self._notes = TiedNotes(self._root, self._project, ties)
            return self._notes

    def of_call(self, tool: str, arguments: Mapping[str, object]) -> Mapping[str, str] | None:
        """Return the field `seen` for the note that a tool call stores: the parts of the project
        that the note is about, each with its hashes and the commit. Return None if the call stores
        no such note.
        """
        return self.notes.of_call(tool, arguments)

    def of_file(self, path: str, text: str) -> Mapping[str, str] | None:
        """Return the field `seen` for a note that a person has saved as a file; None if it needs
        none, or has it already.
        """
        return self.notes.of_file(path, text) if is_note(path) or "\nabout:" in text else None

    def marks_for_push(self, paths: Iterable[str]) -> dict[str, TieMark]:
        """Return the marks of those of the notes that are tied to files, fresh ones included. For
        notes that an agent gets without asking.
        """
        until = time.monotonic() + UNASKED_S
        found: dict[str, TieMark] = {}
        for path in dict.fromkeys(paths):
            verdict = self.notes.verdict(path, until=until)
            if verdict is not None:
                found[path] = TieMark(verdict.mark, is_gone=verdict.is_gone)
        return found

    def marks_for_answer(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the marks of those of the notes that are outdated or could not be checked. For the
        answer to a search.
        """
        notes = self.notes
        until = time.monotonic() + notes.budget_s
        found = {path: notes.verdict(path, until=until) for path in dict.fromkeys(paths)}
        return {path: verdict.mark for path, verdict in found.items() if verdict is not None and verdict.mark}

    def mark_result(self, tool: str, result: dict[str, object]) -> dict[str, object]:
        """Return a tool's result in which outdated notes are marked (`TiedNotes.mark_result`)."""
        return self.notes.mark_result(tool, result)


def names_notes(result: Mapping[str, object]) -> bool:
    """Return True if a tool's result may name a note, so that its notes have to be checked, in a
    thread.
    """
    content = result.get("content")
    texts = [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return any(isinstance(text, str) and ("mem_" in text or ".md" in text) for text in texts)


def warn_unchecked(result: dict[str, object]) -> dict[str, object]:
    """Return a tool's result with a warning that its notes could not be checked."""
    content = result.get("content")
    return {**result, "content": [{"type": "text", "text": _UNKNOWN}, *(content if isinstance(content, list) else [])]}
