"""A record of the texts that each session has been shown, so that no text is shown twice. It
contains only hashes and times. It is stored on disk, for the next process that answers hooks.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable
from typing import Any, Final

from confide_crypto import atomic
from confide_proxy.hooks import hook_paths

MOST_SESSIONS: Final = 64
MOST_SHOWN: Final = 256
"""Most texts of a session; older ones may come again."""
TWICE_S: Final = 5.0
"""Some hosts run the hooks of a plugin and of the client; equal starts within this time count as
one.
"""
_MOST_BYTES: Final = 1024 * 1024
_CHARS: Final = 12


class ShownLedger:
    """The record of shown texts. `load` and `save` access the disk briefly and must not run at the
    same time. If writing fails, the record is lost when the process ends.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self._sessions: dict[str, dict[str, object]] = {}

    def load(self) -> None:
        """Load the record that the previous process has written, if it is readable."""
        try:
            kept = json.loads(hook_paths.plain(self._file, _MOST_BYTES))
        except (OSError, ValueError, RecursionError):
            return
        for name, session in kept.items() if isinstance(kept, dict) else ():
            if isinstance(session, dict) and isinstance(session.get("keys"), list):
                keys = [key for key in session["keys"] if isinstance(key, str)]
                starts = session.get("starts")
                self._sessions[name] = {"keys": keys, "starts": starts if isinstance(starts, dict) else {}}

    def to_text(self) -> str:
        """Return the current record as JSON, for `save` to write on a thread."""
        return json.dumps(self._sessions)

    def save(self, kept: str) -> None:
        """Write a record, as `to_text` returns it, to disk; errors are ignored."""
        try:
            os.makedirs(os.path.dirname(self._file), mode=0o700, exist_ok=True)
            atomic.write(self._file, kept.encode(), is_kept=False)
        except OSError:
            return

    def has(self, session: str, thing: str) -> bool:
        return _digest(thing) in self._of(session)["keys"]

    def add(self, session: str, things: Iterable[str]) -> None:
        keys = self._of(session)["keys"]
        keys += [digest for thing in things if (digest := _digest(thing)) not in keys]
        del keys[:-MOST_SHOWN]

    def has_begun(self, session: str) -> bool:
        """Return True if the start of this session is in the record."""
        return bool(self._of(session)["starts"])

    def starts(self, session: str, source: str, *, is_anew: bool) -> bool:
        """Record the start of a session; return False if the same start was recorded a moment ago.

        `source` is the client's reason for the start. `is_anew` means that the session has lost all
        texts that it was shown before, so they may be shown again.
        """
        now = time.time()
        found = self._of(session)
        before = found["starts"].get(source)
        if isinstance(before, int | float) and 0 <= now - before < TWICE_S:
            return False
        if is_anew:
            found["keys"].clear()
        found["starts"] = {**dict(list(found["starts"].items())[-7:]), source: now}
        return True

    def _of(self, session: str) -> dict[str, Any]:
        name = _digest(session)
        found = self._sessions.pop(name, None) or {"keys": [], "starts": {}}
        self._sessions[name] = found
        while len(self._sessions) > MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return found


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_CHARS // 2).hexdigest()
