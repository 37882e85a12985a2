"""Which transcripts to look at, and when: files are looked at, not watched, since most of them never change again.

Those that were written to lately are looked at every time, folders as well, since a new file changes its folder; everything every `WALK_S`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from confide_proxy.sync.transcripts.files import Found, looked_at
from confide_proxy.sync.transcripts.source import Source

WALK_S: Final = 120.0
"""An old session that is taken up again is noticed so late; 2,000 files cost 30 ms."""
LATELY_S: Final = 3600.0


class Lookout:
    """One source's. Methods block briefly."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._files: dict[str, Found] = {}
        self._folders: dict[Path, int] = {}
        self._walked = float("-inf")
        self._changed: dict[str, tuple[Found, float]] = {}

    def unsettled(self) -> list[tuple[Found, float]]:
        """The transcripts of which something may have to be sent, each with the seconds for which it has not changed."""
        if time.monotonic() - self._walked >= WALK_S or self._folders != self._stamps(self._folders):
            self._walk()
        else:
            self._look()
        self._changed = {session: seen for session, seen in self._changed.items() if session in self._files}
        waiting = [file for file in self._files.values() if not self._source.is_settled(file)]
        return [(file, self._quiet_s(file)) for file in waiting]

    def _walk(self) -> None:
        files, folders = self._source.found()
        self._walked = time.monotonic()
        self._folders = self._stamps(folders)
        since_ns = (time.time() - LATELY_S) * 1e9
        self._files = {
            file.session: file for file in files if file.mtime_ns >= since_ns or not self._source.is_settled(file)
        }

    def _look(self) -> None:
        for session, file in list(self._files.items()):
            now = looked_at(file)
            if now is None:
                del self._files[session]
            else:
                self._files[session] = now

    def _quiet_s(self, file: Found) -> float:
        """By our own clock from the second look on: the wall's may jump."""
        seen = self._changed.get(file.session)
        if seen is None:
            since = time.monotonic() - max(0.0, time.time() - file.mtime_ns / 1e9)
            seen = self._changed[file.session] = (file, since)
        elif seen[0] != file:
            seen = self._changed[file.session] = (file, time.monotonic())
        return time.monotonic() - seen[1]

    def _stamps(self, folders: dict[Path, int] | list[Path]) -> dict[Path, int]:
        stamps = {}
        for folder in folders:
            try:
                stamps[folder] = folder.stat().st_mtime_ns
            except OSError:
                stamps[folder] = 0
        return stamps
