"""A notice for users and agents that memory files of a folder went missing or were deleted
together, or that this device's disk refused some.

It is a small file beside the folder's sync ledger, shared by all processes of the device. It lists
the files, so that a user can later confirm that they are to be deleted.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from confide_crypto import atomic

KEPT_S: Final = 86_400.0
"""Seconds for which a notice is shown after the files came back or were deleted."""
_MOST_PATHS: Final = 10_000
_MOST_BYTES: Final = 8 << 20

_FORMS: Final[tuple[dict[str, type], ...]] = (
    {"at": float, "missing": dict, "of": int, "why": str, "waits": bool},
    {"droppedAt": float, "dropped": int},
    {"backAt": float, "back": int, "backWhy": str},
    {"refused": int, "refusedWhy": str},
)
"""The parts of a notice: each has all of these fields, or none."""


class Notice:
    """The notice about one folder. Methods access the disk briefly. If the file cannot be read or
    written, users get no notice.

    Attributes:
        turn: a lock that is held while the file is read and written, since several files are
            received at once. A caller that counts files before it records them must hold it too.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.turn = threading.RLock()

    def note_missing(self, hashes: dict[str, str], *, of: int, why: str, is_waiting: bool) -> None:
        """Record that memory files of the folder went missing.

        Args:
            hashes: the missing files' paths, with the hashes of the texts that the daemon last
                confirmed.
            of: the number of files that the folder had.
            why: the reason, as a part of a sentence for users.
            is_waiting: True if the files are still missing; False if Confide is restoring them.
        """
        with self.turn:
            known = self._read()
            before = known.get("missing", {}) if _is_recent(known.get("at")) else {}
            missing = dict(list({**before, **hashes}.items())[:_MOST_PATHS])
            self._write({**known, "at": time.time(), "missing": missing, "of": of, "why": why, "waits": is_waiting})

    def note_found(self) -> None:
        """Record that no files are missing any longer."""
        with self.turn:
            if self._file.exists() and (known := self._read()).get("waits"):
                self._write({**known, "waits": False})

    def note_dropped(self, count: int) -> None:
        """Record that Confide deleted `count` files here within seconds, because they were deleted
        on other devices.
        """
        with self.turn:
            self._write({**self._read(), "droppedAt": time.time(), "dropped": count})

    def note_came_back(self, count: int, why: str) -> None:
        """Record that Confide replaced the texts of `count` files by the daemon's newest ones
        within seconds, because no user meant to change them. `why` is the reason, as a part of a
        sentence.
        """
        with self.turn:
            self._write({**self._read(), "backAt": time.time(), "back": count, "backWhy": why})

    def note_refused(self, reasons: Sequence[str]) -> None:
        """Record which files and folders could not be read or written in a comparison of all files:
        the reason for each, as a part of a sentence; none if all could.
        """
        with self.turn:
            known = self._read() if self._file.exists() else {}
            told = {"refused": len(reasons), "refusedWhy": reasons[0]} if reasons else {}
            if told != {name: known[name] for name in ("refused", "refusedWhy") if name in known}:
                others = {name: value for name, value in known.items() if name not in ("refused", "refusedWhy")}
                self._write({**others, **told})

    def refusals(self) -> list[str]:
        """Return a sentence for users about the files that could not be read or written in the last
        comparison; none if all could. It contains no paths.
        """
        known = self._read() if self._file.exists() else {}
        if not (count := known.get("refused")):
            return []
        files, them = ("1 memory file or folder", "it") if count == 1 else (f"{count} memory files or folders", "them")
        said = f"{files} could not be read or written here at the last comparison ({known['refusedWhy']})"
        return [f"{said}: confide sync tries again, and names {them}"]

    def clear(self) -> None:
        """Delete the notice, because a user has decided about the files."""
        with suppress(OSError):
            self._file.unlink(missing_ok=True)

    def missing(self) -> dict[str, str]:
        """Return the files that went missing in the last `KEPT_S` seconds: their paths, with the
        hashes of the texts that the daemon last confirmed.
        """
        known = self._read()
        return dict(known["missing"]) if _is_recent(known.get("at")) else {}

    def sentences(self, *, is_shared: bool = False) -> list[str]:
        """Return the notice as sentences for users. They contain no paths.

        `is_shared`: the folder is that of the memory that all projects share. A project's
        `confide sync --deleted` does not mean it.
        """
        if not self._file.exists():
            return []
        known = self._read()
        where = "from the memory that all projects share" if is_shared else "in this folder"
        deleted = "confide sync --deleted --project ~" if is_shared else "confide sync --deleted"
        lines = []
        if _is_recent(known.get("at")) and known.get("missing"):
            count, of = len(known["missing"]), max(known["of"], len(known["missing"]))
            files = f"{count} of {of} memory files" if of > 1 else "the one memory file"
            if known["waits"]:
                said = f"{files} went missing {where} ({known['why']}): no other device deletes anything"
                lines.append(f"{said}; confide sync brings back what can be, and {deleted} deletes all of it")
            else:
                said = f"{files} went missing {where} at {_clock(known['at'])} and came back ({known['why']})"
                lines.append(f"{said}; if they are to be deleted everywhere: {deleted}")
        if _is_recent(known.get("droppedAt")):
            said = f"{known['dropped']} memory files were deleted here at {_clock(known['droppedAt'])}, as elsewhere"
            lines.append(f"{said}: confide restore --list lists them, confide restore brings one back")
        if _is_recent(known.get("backAt")):
            files = "1 memory file" if known["back"] == 1 else f"{known['back']} memory files"
            said = f"Confide fetched the newest text of {files} at {_clock(known['backAt'])}, since {known['backWhy']}"
            lines.append(f"{said}: confide history shows all texts of a file")
        return lines

    def _read(self) -> dict[str, Any]:
        try:
            with self._file.open("rb") as file:
                known = json.loads(file.read(_MOST_BYTES))
            return known if _is_of_form(known) else {}
        except (OSError, ValueError, RecursionError):
            return {}

    def _write(self, known: dict[str, object]) -> None:
        with suppress(OSError):
            atomic.write(self._file, json.dumps(known).encode(), is_kept=False)


def _is_of_form(known: Any) -> bool:
    if not isinstance(known, dict):
        return False
    for form in _FORMS:
        if not form.keys().isdisjoint(known) and not all(isinstance(known.get(name), form[name]) for name in form):
            return False
    return True


def _is_recent(moment: float | None) -> bool:
    return moment is not None and time.time() - moment < KEPT_S


def _clock(moment: float) -> str:
    return f"{datetime.fromtimestamp(moment).astimezone():%H:%M}"
