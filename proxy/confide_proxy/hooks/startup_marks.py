"""Marks on disk for sessions whose hooks fire before any process listens: a hook reads from them
that a session is starting, and a later listener that a hook was not answered.

A client fires its first hooks while `confide mcp` is still loading; a client started for a single
prompt fires all of them within a second. So a prompt waits for a starting session as long as it has
time, and an unanswered start is answered at the first prompt.
"""

from __future__ import annotations

import os
import time

from confide_crypto import portable
from confide_proxy.hooks import hook_paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

FRESH_S: Final = 2.0
"""A session that isn't listening this long after its start won't do so soon."""
MOST_BYTES: Final = 8192
"""Size at which the list of starts is cleared. A session without a prompt for so long is briefed at
the next start.
"""
_FOLDER: Final = "hooks"
_STARTING: Final = "starting"
_MISSED: Final = "unanswered"
_AWAITED: Final = "awaited"


def note(state: str) -> None:
    """Mark that a session is starting. A failed write only costs a prompt its hits."""
    if os.path.isdir(state):  # otherwise Confide isn't set up here
        _append(state, _STARTING, b"")


def is_noted(state: str) -> bool:
    """Return True if a session has just started."""
    try:
        age_s = time.time() - os.lstat(os.path.join(state, _FOLDER, _STARTING)).st_mtime
    except OSError:
        return False
    return 0 <= age_s < FRESH_S


def hurry(state: str) -> None:
    """Mark that a prompt waits for a starting session, which then should start at full speed."""
    _append(state, _AWAITED, b"")


def is_hurried(state: str, since: float) -> bool:
    """Return True if a prompt began to wait at or after `since` (seconds, as `time.time`)."""
    try:
        return os.lstat(os.path.join(state, _FOLDER, _AWAITED)).st_mtime >= since
    except OSError:
        return False


def miss(state: str, session: str) -> None:
    """Note, below the state folder, that the hook at this session's start got no answer from
    `confide mcp`.

    The first prompt then brings the briefing instead. If the note cannot be written, the session
    gets none.
    """
    if line := _line(session):
        _append(state, _MISSED, line)


def is_missed(state: str, session: str) -> bool:
    """Return True if the start of the session was not answered."""
    try:
        listed = hook_paths.plain(os.path.join(state, _FOLDER, _MISSED), 2 * MOST_BYTES)
    except OSError:
        return False
    line = _line(session)
    return bool(line) and line in listed.splitlines(keepends=True)


def _line(session: str) -> bytes:
    """Return the line for a session; empty for a name that no client uses (theirs are UUIDs)."""
    data = session.encode("utf-8", "replace")
    return data + b"\n" if data.isascii() and len(data) <= 128 and session.isprintable() else b""


def _append(state: str, name: str, line: bytes) -> None:
    path = os.path.join(state, _FOLDER, name)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | portable.NO_LINK | portable.NO_WAIT | portable.CLOSED
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        fd = os.open(path, flags, 0o600)
        try:
            if os.fstat(fd).st_size > MOST_BYTES:
                os.ftruncate(fd, 0)
            if line:
                os.write(fd, line)
            else:
                os.utime(fd)
        finally:
            os.close(fd)
    except OSError:
        return
