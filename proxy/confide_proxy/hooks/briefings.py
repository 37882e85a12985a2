"""Briefings on disk: the text that is shown to a model when a session starts. There is one file per
project, and an index that maps folders to these files.

The process that answers all hooks of this device writes them; a hook can read one even if no other
process runs. They are stored escaped, as a model may see them.
"""

from __future__ import annotations

import json
import os
import time

from confide_crypto import atomic
from confide_proxy.hooks import block, hook_paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

MOST_BYTES: Final = 64 * 1024
MOST_FOLDERS: Final = 256
FOLDER: Final = "briefing"
_LIST: Final = "folders.json"
_DEEPEST: Final = 64
_OWN: Final = (".git", ".confide.toml", "MEMORY.md", "memory")
"""A folder with one of these isn't part of the project above it (`sync/project.py`)."""


def read(state: str, cwd: str, *, now: float | None = None) -> str:
    """Return the framed briefing for a session in the folder `cwd`; "" if there is none."""
    folders = _object(os.path.join(state, FOLDER, _LIST))
    folder = os.path.realpath(cwd) if cwd else ""
    for _ in range(_DEEPEST):
        if not folder:
            return ""
        name = folders.get(folder)
        if isinstance(name, str) and name.isalnum():
            return _block(_object(os.path.join(state, FOLDER, f"{name}.json")), time.time() if now is None else now)
        above = os.path.dirname(folder)
        is_own = any(os.path.lexists(os.path.join(folder, mark)) for mark in _OWN)
        folder = "" if is_own or above == folder else above
    return ""


def _block(kept: dict[str, object], now: float) -> str:
    lines, written = kept.get("lines"), kept.get("written")
    if not isinstance(lines, list) or not lines or not isinstance(written, int | float):
        return ""
    return block.frame_lines([line for line in lines if isinstance(line, str)], age_s=max(0.0, now - written))


def save(state: str, folder: str, name: str, lines: Sequence[str], *, now: float | None = None) -> None:
    """Store the briefing `name` (letters and digits) of the project in `folder`. Raises OSError if
    the file cannot be written.
    """
    place = os.path.join(state, FOLDER)
    os.makedirs(place, mode=0o700, exist_ok=True)
    kept = {"written": int(time.time() if now is None else now), "lines": list(lines)}
    _write(os.path.join(place, f"{name}.json"), kept)
    listed = os.path.join(place, _LIST)
    folders = _object(listed)
    if folders.get(folder) == name:
        return
    folders.pop(folder, None)
    folders[folder] = name
    newest = dict(list(folders.items())[-MOST_FOLDERS:])
    _write(listed, newest)
    for gone in {each for each in folders.values() if isinstance(each, str)} - set(newest.values()):
        try:
            os.unlink(os.path.join(place, f"{gone}.json"))
        except OSError:
            continue


def _object(path: str) -> dict[str, object]:
    try:
        found = json.loads(hook_paths.plain(path, MOST_BYTES * 4))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(path: str, value: dict[str, object]) -> None:
    """Write a file atomically. Raises OSError."""
    atomic.write(path, json.dumps(value).encode(), is_kept=False)
