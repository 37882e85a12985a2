"""The ties of a session's notes, loaded at the first call that needs them: a start needs neither
parsers nor threads.
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
    """The mark of a tied note; "" while it is fresh.

    Attributes:
        is_gone: nothing of which it speaks exists any more, so that it never comes unasked.
    """

    text: str
    is_gone: bool


class LateTies:
    """The tied notes of one project. All methods block."""

    def __init__(self, root: Path, project: str, sealing: SessionSealing) -> None:
        """`root`: the project's folder on this device."""
        self._root = root
        self._project = project
        self._sealing = sealing
        self._notes: TiedNotes | None = None
        self._lock = threading.Lock()

    @property
    def notes(self) -> TiedNotes:
        """The notes; the first use loads the module."""
        with self._lock:
            if self._notes is None:
                from confide_proxy.freshness.note_ties import ProjectTies
                from confide_proxy.freshness.tied_notes import TiedNotes

                keyring = self._sealing.keyring
                ties = ProjectTies(self._root, lambda: keyring.keys or keyring.last_keys)
                self._notes = TiedNotes(self._root, self._project, ties)
            return self._notes

    def of_call(self, tool: str, arguments: Mapping[str, object]) -> Mapping[str, str] | None:
        """Return the parts of the project that the note which a tool call stores speaks of, each
        with its keyed hash and commit, for the note's field `seen`; None for a call without any.
        """
        return self.notes.of_call(tool, arguments)

    def of_file(self, path: str, text: str) -> Mapping[str, str] | None:
        """Return the same for a note that a person has saved as a file."""
        return self.notes.of_file(path, text) if is_note(path) or "\nabout:" in text else None

    def marks_for_push(self, paths: Iterable[str]) -> dict[str, TieMark]:
        """Return the marks of the tied notes among these, for what an agent gets without asking."""
        until = time.monotonic() + UNASKED_S
        found: dict[str, TieMark] = {}
        for path in dict.fromkeys(paths):
            verdict = self.notes.verdict(path, until=until)
            if verdict is not None:
                found[path] = TieMark(verdict.mark, is_gone=verdict.is_gone)
        return found

    def marks_for_answer(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the marks of those notes among these that are not fresh, for an answer."""
        notes = self.notes
        until = time.monotonic() + notes.budget_s
        found = {path: notes.verdict(path, until=until) for path in dict.fromkeys(paths)}
        return {path: verdict.mark for path, verdict in found.items() if verdict is not None and verdict.mark}

    def mark_result(self, tool: str, result: dict[str, object]) -> dict[str, object]:
        """Return a result with marks at outdated notes (`TiedNotes.mark_result`)."""
        return self.notes.mark_result(tool, result)


def names_notes(result: Mapping[str, object]) -> bool:
    """Return True if a tool's result may name a note, so that it has to be looked at in a thread."""
    content = result.get("content")
    texts = [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return any(isinstance(text, str) and ("mem_" in text or ".md" in text) for text in texts)


def warn_unchecked(result: dict[str, object]) -> dict[str, object]:
    """Return a tool's result with a warning that its notes were not checked."""
    content = result.get("content")
    return {**result, "content": [{"type": "text", "text": _UNKNOWN}, *(content if isinstance(content, list) else [])]}
