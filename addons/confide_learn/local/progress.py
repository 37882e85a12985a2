"""How far each transcript was gone through, so that the learner reads on from there: one file, written whole or not at all.

One process has the seat, so nobody else writes it.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

KEPT_S: Final = 90 * 86_400
MOST_SESSIONS: Final = 5_000


@dataclass(frozen=True, slots=True)
class Known:
    """How far one transcript is.

    Attributes:
        offset: what stands before it has been judged.
        head, mark: what tells the file, and that it was not rewritten (`sync.transcripts.files`).
        exchanges: how many were judged.
        note: the id of the note of the session, once there is one.
        tainted: the agent has read what strangers wrote, or may have; it stays so to the session's end.
        at: when this was last changed, in seconds since 1970.
    """

    offset: int = 0
    head: str = ""
    mark: str = ""
    exchanges: int = 0
    note: str = ""
    tainted: bool = False
    at: int = 0


class Progress:
    """All of them, by the paths of the transcripts. Methods touch the disk briefly."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "progress.json"
        self._known: dict[str, Known] = {}
        try:
            table = json.loads(self._file.read_bytes())
        except (OSError, ValueError, RecursionError):
            return  # there is none yet, or it is damaged: what was learned is known by its text
        if isinstance(table, dict):
            self._known = {path: known for path, each in table.items() if (known := _known(each)) is not None}

    def get(self, path: str) -> Known:
        """How far a transcript is; nothing is known of a new one."""
        return self._known.get(path, Known())

    def set(self, path: str, known: Known) -> None:
        """Remember it. Raises OSError: the disk refuses; the file is as it was."""
        self._known.pop(path, None)
        self._known[path] = known
        oldest = time.time() - KEPT_S
        kept = [(path, known) for path, known in self._known.items() if known.at >= oldest][-MOST_SESSIONS:]
        self._known = dict(kept)
        write_whole(self._file, {path: asdict(known) for path, known in kept})


def _known(table: Any) -> Known | None:
    if not isinstance(table, dict):
        return None
    usual = {field.name: field.default for field in fields(Known)}
    given = {name: value for name, value in table.items() if name in usual}
    return Known(**given) if all(type(value) is type(usual[name]) for name, value in given.items()) else None


def write_whole(file: Path, value: Any) -> None:
    """Put JSON in a file of the learner's, of mode 0600, whole or not at all. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(fd, "w", encoding="utf-8") as opened:
            json.dump(value, opened, ensure_ascii=True, separators=(",", ":"))
            opened.flush()
            os.fsync(fd)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
