"""Sessions whose hooks fire before anybody listens: marks on the disk that tell a hook of a session, and whoever listens later of a hook.

A client fires its first hooks while `confide mcp` still loads; one that is started for one prompt alone fires all of them within a second.
So a prompt waits for a session that starts, as far as it has time, and a start that nobody could answer is made up for at the first prompt.
"""

from __future__ import annotations

import os
import time

from confide_proxy.hooks import hook_paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

FRESH_S: Final = 2.0
"""A session that does not listen within so long of its start will not do so soon."""
MOST_BYTES: Final = 8192
"""Of the list of starts; it is begun anew then: who has not said anything for so many sessions is briefed by the next."""
_FOLDER: Final = "hooks"
_STARTING: Final = "starting"
_MISSED: Final = "unanswered"
_AWAITED: Final = "awaited"


def note(state: str) -> None:
    """A session starts now. A disk that refuses costs a prompt its hits, and nothing else."""
    if os.path.isdir(state):  # else nothing was ever set up here
        _append(state, _STARTING, b"")


def is_noted(state: str) -> bool:
    """Whether one started a moment ago."""
    try:
        age_s = time.time() - os.lstat(os.path.join(state, _FOLDER, _STARTING)).st_mtime
    except OSError:
        return False
    return 0 <= age_s < FRESH_S


def hurry(state: str) -> None:
    """A prompt waits for a session that starts: it need not spare its client any longer."""
    _append(state, _AWAITED, b"")


def is_hurried(state: str, since: float) -> bool:
    """Whether a prompt has begun to wait at or after `since` (seconds, as `time.time`)."""
    try:
        return os.lstat(os.path.join(state, _FOLDER, _AWAITED)).st_mtime >= since
    except OSError:
        return False


def miss(state: str, session: str) -> None:
    """The start of that session has brought nothing. A disk that refuses costs it its briefing."""
    if line := _line(session):
        _append(state, _MISSED, line)


def is_missed(state: str, session: str) -> bool:
    """Whether the start of that session has brought nothing."""
    try:
        listed = hook_paths.plain(os.path.join(state, _FOLDER, _MISSED), 2 * MOST_BYTES)
    except OSError:
        return False
    line = _line(session)
    return bool(line) and line in listed.splitlines(keepends=True)


def _line(session: str) -> bytes:
    """Clients' names of sessions are UUIDs; what is longer or looks otherwise is none of theirs."""
    data = session.encode("utf-8", "replace")
    return data + b"\n" if data.isascii() and len(data) <= 128 and session.isprintable() else b""


def _append(state: str, name: str, line: bytes) -> None:
    path = os.path.join(state, _FOLDER, name)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
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
