"""Detection of Claude Code's own notes in a project's memory, where they are if the user has set
its `autoMemoryDirectory` so (`auto_memory.py`).

Claude Code writes such notes without asking, and gives their index, `MEMORY.md`, to its model as
the user's instructions that override all others. So an index in that folder is accepted only from
this device. Other files in it don't count as the user's text: an agent may have written what a web
page said.

This code runs for every synced file, so it loads next to nothing, and reads the settings only if
they have changed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

from confide_memory.documents import MEMORY_FOLDER, to_nfc

KEY: Final = "autoMemoryDirectory"
_INDEX: Final = "memory.md"
_MOST_BYTES: Final = 2**24


class OwnNotes:
    """The folder of Claude Code's notes in one project's memory, by Claude Code's current settings."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files: tuple[Path, ...] = ()
        self._stamps: tuple[tuple[int, ...], ...] | None = None
        self._cached_folders: tuple[str, ...] = ()

    def has(self, path: str) -> bool:
        """Return True if the memory file at `path` is one of Claude Code's notes."""
        return self._rest(_fold_case(path)) is not None

    def is_index(self, path: str) -> bool:
        """Return True if the memory file is the index of Claude Code's notes, which it gives to its
        model as instructions.
        """
        folded = _fold_case(path)
        # The name is rare, so it is checked first.
        return folded.endswith(f"/{_INDEX}") and self._rest(folded) == _INDEX

    def _rest(self, folded: str) -> str | None:
        """Return the path below the folder, or None if it isn't in it."""
        if not folded.startswith(f"{MEMORY_FOLDER}/"):
            return None
        inside = (folder for folder in self._folders() if folded.startswith(f"{folder}/"))
        return next((folded[len(folder) + 1 :] for folder in inside), None)

    def _folders(self) -> tuple[str, ...]:
        """Return the folders of the project's and the user's settings, either of which may apply,
        relative to the root and folded.
        """
        if not self._files:
            from confide_proxy.clients.rules import claude_settings  # heavy: loads all of `confide setup`

            self._files = tuple(claude_settings(self._root, for_user=for_user) for for_user in (False, True))
        stamps = tuple(map(_stamp, self._files))
        if stamps != self._stamps:
            root = os.path.realpath(self._root)
            said = (Path(directory).expanduser() for file in self._files if (directory := _configured_folder(file)))
            relative = (Path(os.path.relpath(os.path.realpath(each), root)).as_posix() for each in said)
            self._cached_folders = tuple(_fold_case(each) for each in relative if not each.startswith(".."))
            self._stamps = stamps
        return self._cached_folders


def _stamp(file: Path) -> tuple[int, ...]:
    try:
        status = file.stat()
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _configured_folder(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            told: Any = json.loads(opened.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return ""
    directory = told.get(KEY) if isinstance(told, dict) else None
    return directory if isinstance(directory, str) and "\0" not in directory else ""


def _fold_case(path: str) -> str:
    """Fold case and Unicode forms, which some file systems don't distinguish."""
    return to_nfc(path.lower())
