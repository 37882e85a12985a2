"""The record of each import of this device, so that the last one can be undone.

    <state>/imports/<time>.jsonl    one line about the import, one a batch, and one when it is undone

A line is appended with each batch, so that an import that was interrupted can be undone too.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confide_crypto.errors import KeyFileError
from confide_crypto.keys.private_files import make_private_dir, remove_private_file
from confide_memory.documents import iso

log = logging.getLogger(__name__)

KEPT: Final = 16
"""Imports that are remembered, the newest."""
_MOST_BYTES: Final = 32 * 1024 * 1024
"""Most bytes of a file: more than the ids of the largest import have."""


@dataclass(slots=True)
class PastImport:
    """An import that this device made.

    Attributes:
        at: its time, in ISO 8601.
        space: the daemon's id of the space.
        sources: what was imported, as the preview names it.
        ids: the ids of the notes that it made, by project.
        undone: the time when it was undone, in ISO 8601, or "".
    """

    file: Path
    at: str
    space: str
    sources: list[str]
    ids: dict[str, list[str]] = field(default_factory=dict)
    undone: str = ""

    @property
    def count(self) -> int:
        """The number of notes that it made."""
        return sum(map(len, self.ids.values()))

    def record_undo(self) -> None:
        """Record that it was undone. Raises KeyFileError."""
        self.undone = iso(time.time())
        _append(self.file, {"undone": self.undone})


class ImportLog:
    """The file that records one import while it runs. Errors are only logged, since they must not
    end the import.
    """

    def __init__(self, state: Path, space: str, sources: Sequence[str]) -> None:
        """Nothing is written before the first note.

        Args:
            state: the folder of this device's state.
            space: the daemon's id of the space.
            sources: what is imported.
        """
        self._folder = state / "imports"
        self._head: dict[str, Any] | None = {"space": space, "sources": list(sources)[:KEPT]}
        self._file = self._folder

    def add(self, project: str, ids: Sequence[str]) -> None:
        """Record notes that were stored. Blocks."""
        if not ids:
            return
        try:
            if self._head is not None:
                make_private_dir(self._folder)
                self._file = self._folder / f"{time.time_ns():020}.jsonl"
                _append(self._file, {"at": iso(time.time()), **self._head})
                self._head = None
                for old in sorted(self._folder.glob("*.jsonl"))[:-KEPT]:
                    remove_private_file(old)
            _append(self._file, {"project": project, "ids": list(ids)})
        except (OSError, KeyFileError) as error:
            log.warning("this import cannot be undone without its paths: %s", error)


def newest(state: Path, space: str) -> PastImport | None:
    """Return the last import of this device into a space; None if none is known. Blocks."""
    for file in sorted((state / "imports").glob("*.jsonl"), reverse=True):
        found = _read(file)
        if found is not None and found.space == space and found.ids:
            return found
    return None


def _read(file: Path) -> PastImport | None:
    """Return an import, or None if its file is damaged. A line that a crash has cut short is ignored."""
    found: PastImport | None = None
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        for line in _lines(file):
            if found is None:
                found = PastImport(file, str(line["at"]), str(line["space"]), [str(one) for one in line["sources"]])
            elif "undone" in line:
                found.undone = str(line["undone"])
            else:
                found.ids.setdefault(str(line["project"]), []).extend(str(one) for one in line["ids"])
    return found


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    with file.open("rb") as opened:
        for line in opened.read(_MOST_BYTES).splitlines():
            yield json.loads(line)


def _append(file: Path, line: dict[str, object]) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    with os.fdopen(descriptor, "ab") as opened:
        opened.write(json.dumps(line).encode() + b"\n")
