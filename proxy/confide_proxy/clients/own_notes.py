"""Where Claude Code keeps notes of its own in a project's memory: its `autoMemoryDirectory`, if a person has set it so (`auto_memory.py`).

It writes such notes without a question, and gives its model the index of them, `MEMORY.md` beside them, as instructions of the person's
that override all others. So of that folder an index comes from this machine alone, and what else goes out from it is nobody's word: an
agent may have noted what a web page told it.

Asked about every file that is synced, so it loads next to nothing, and reads settings anew only where they have changed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

from confide_memory.documents import MEMORY_FOLDER, composed

KEY: Final = "autoMemoryDirectory"
_INDEX: Final = "memory.md"
_MOST_BYTES: Final = 2**24


class OwnNotes:
    """The folder of one project, as the settings are at each moment."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files: tuple[Path, ...] = ()
        self._stamps: tuple[tuple[int, ...], ...] | None = None
        self._known: tuple[str, ...] = ()

    def has(self, path: str) -> bool:
        """Whether the file at `path` lies there."""
        return self._rest(_folded(path)) is not None

    def is_index(self, path: str) -> bool:
        """Whether it is what Claude Code gives its model as instructions."""
        folded = _folded(path)
        # Next to no file has its name.
        return folded.endswith(f"/{_INDEX}") and self._rest(folded) == _INDEX

    def _rest(self, folded: str) -> str | None:
        """The path below the folder; None where it is not in it, or there is no such folder."""
        if not folded.startswith(f"{MEMORY_FOLDER}/"):
            return None
        inside = (folder for folder in self._folders() if folded.startswith(f"{folder}/"))
        return next((folded[len(folder) + 1 :] for folder in inside), None)

    def _folders(self) -> tuple[str, ...]:
        """Relative to the root and folded: of the project's own settings and of the user's, either of which may be the one that counts."""
        if not self._files:
            from confide_proxy.clients.rules import claude_settings  # with all that `confide setup` needs

            self._files = tuple(claude_settings(self._root, for_user=for_user) for for_user in (False, True))
        stamps = tuple(map(_stamp, self._files))
        if stamps != self._stamps:
            root = os.path.realpath(self._root)
            said = (Path(directory).expanduser() for file in self._files if (directory := _said(file)))
            relative = (Path(os.path.relpath(os.path.realpath(each), root)).as_posix() for each in said)
            self._known = tuple(_folded(each) for each in relative if not each.startswith(".."))
            self._stamps = stamps
        return self._known


def _stamp(file: Path) -> tuple[int, ...]:
    try:
        status = file.stat()
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _said(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            told: Any = json.loads(opened.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return ""
    directory = told.get(KEY) if isinstance(told, dict) else None
    return directory if isinstance(directory, str) and "\0" not in directory else ""


def _folded(path: str) -> str:
    """On some file systems the same file has another case, or another spelling in Unicode."""
    return composed(path.lower())
