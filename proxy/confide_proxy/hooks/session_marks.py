"""Small files that record facts about sessions. Hooks write them, and other processes read them.

Two are for hooks that fire before any process listens. One shows a hook that a session is starting;
the other shows a later listener that a hook got no answer. A client fires its first hooks while
`confide mcp` is still loading; a client started for a single prompt fires all of them within a
second. So a prompt's hook waits for a starting session as long as it has time, and an unanswered
session start is answered at the first prompt.

A third file lists the sessions that have read text of third parties, with the process ID of the
client that runs each. `confide mcp` is started by the same client, so it knows that its own agent
has read such text: what that agent stores gets the class `untrusted`. A new session of the client
starts without this mark.
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
MOST_FOREIGN: Final = 64 * 1024
"""Size at which the older half of the marks of foreign text is dropped."""
CLIENT_PID: Final = "CONFIDE_CLIENT_PID"
"""Set by hooks that the client does not wait for, whose parent may have ended."""
SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ash", "fish", "ksh", "busybox"})
_FOLDER: Final = "hooks"
_STARTING: Final = "starting"
_MISSED: Final = "unanswered"
_AWAITED: Final = "awaited"
_FOREIGN: Final = "foreign"
_READ: Final = b"+"
_NEW: Final = b"-"
_DEEPEST: Final = 3
"""Processes above `confide mcp` of which one is its client: launchers such as uvx stand between."""


def note(state: str) -> None:
    """Record that a session is starting. If the write fails, only the first prompt gets no search
    results.
    """
    if os.path.isdir(state):  # otherwise Confide isn't set up here
        _append(state, _STARTING, b"")


def is_noted(state: str) -> bool:
    """Return True if a session has started a moment ago, so that it may not listen yet."""
    try:
        age_s = time.time() - os.lstat(os.path.join(state, _FOLDER, _STARTING)).st_mtime
    except OSError:
        return False
    return 0 <= age_s < FRESH_S


def hurry(state: str) -> None:
    """Record that a prompt's hook waits for a starting session, which should then start at full
    speed.
    """
    _append(state, _AWAITED, b"")


def is_hurried(state: str, since: float) -> bool:
    """Return True if a prompt's hook began to wait for a session at or after the time `since`
    (seconds since 1970).
    """
    try:
        return os.lstat(os.path.join(state, _FOLDER, _AWAITED)).st_mtime >= since
    except OSError:
        return False


def miss(state: str, session: str) -> None:
    """Record that the hook at this session's start got no answer from `confide mcp`.

    The hook at the first prompt then brings the briefing. If the record cannot be written, the
    session gets no briefing.
    """
    if line := _line(session):
        _append(state, _MISSED, line)


def is_missed(state: str, session: str) -> bool:
    """Return True if the hook at this session's start got no answer."""
    try:
        listed = hook_paths.plain(os.path.join(state, _FOLDER, _MISSED), 2 * MOST_BYTES)
    except OSError:
        return False
    line = _line(session)
    return bool(line) and line in listed.splitlines(keepends=True)


def note_foreign(state: str, session: str, *, client_pid: int = 0) -> None:
    """Record that a session has read text of third parties. `client_pid` is the process ID of its
    client; 0 means the client that runs this hook.
    """
    name, client = _session(session), b"p:%d" % client_pid if client_pid > 0 else _client()
    if not ((not name or _is_foreign(state, name)) and _is_foreign(state, client)):
        _append(state, _FOREIGN, b"%s %s %s\n" % (_READ, name or b"s:", client), most=MOST_FOREIGN)


def follow(state: str, session: str, *, is_new: bool) -> None:
    """Apply a session's record of foreign text to the client process that runs the session now. If
    the session `is_new`, cancel the record of that client's previous session instead.
    """
    if not os.path.lexists(os.path.join(state, _FOLDER, _FOREIGN)):
        return
    name, client = _session(session), _client()
    if is_new and ((name and _is_foreign(state, name)) or _is_foreign(state, client)):
        _append(state, _FOREIGN, b"%s %s %s\n" % (_NEW, name or b"s:", client), most=MOST_FOREIGN)
    elif not is_new and name and _is_foreign(state, name):
        note_foreign(state, session)


def has_read_foreign(state: str) -> bool:
    """Return True if the client that started this process runs a session that has read text of
    third parties.
    """
    pid = os.getppid()
    for _ in range(_DEEPEST):
        if pid <= 1:
            return False
        if _is_foreign(state, b"p:%d" % pid):
            return True
        pid = _parent(pid)[0]
    return False


def _client() -> bytes:
    """Return the client's process that runs this hook: its parent, without shells between."""
    given = os.environ.get(CLIENT_PID, "")
    pid = int(given) if given.isascii() and given.isdecimal() and len(given) < 12 else os.getppid()
    for _ in range(_DEEPEST):
        above, name = _parent(pid)
        if name not in SHELLS or above <= 1:
            break
        pid = above
    return b"p:%d" % pid


def _session(session: str) -> bytes:
    line = _line(session).strip().replace(b" ", b"_")
    return b"s:" + line if line else b""


def _parent(pid: int) -> tuple[int, str]:
    """Return a process's parent, and its own name; 0 and "" on systems without `/proc`."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            head, _, rest = file.read(4096).rpartition(b")")
        return int(rest.split()[1]), head.partition(b"(")[2].decode("utf-8", "replace")
    except (OSError, ValueError, IndexError):
        return 0, ""


def _is_foreign(state: str, name: bytes) -> bool:
    """Return True if the last line about a session, or about a process, marks it."""
    try:
        listed = hook_paths.plain(os.path.join(state, _FOLDER, _FOREIGN), 2 * MOST_FOREIGN)
    except OSError:
        return False
    for line in reversed(listed.splitlines()):
        if name in line.split():
            return line.startswith(_READ)
    return False


def _line(session: str) -> bytes:
    """Return the line for a session; empty for a name that no client uses (theirs are UUIDs)."""
    data = session.encode("utf-8", "replace")
    return data + b"\n" if data.isascii() and len(data) <= 128 and session.isprintable() else b""


def _append(state: str, name: str, line: bytes, *, most: int = 0) -> None:
    """Append a line. A file that exceeds `most` bytes keeps its newer half; without `most`, one that
    exceeds `MOST_BYTES` is cleared.
    """
    path = os.path.join(state, _FOLDER, name)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | portable.NO_LINK | portable.NO_WAIT | portable.CLOSED
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        fd = os.open(path, flags, 0o600)
        try:
            size = os.fstat(fd).st_size
            if size > (most or MOST_BYTES):
                os.lseek(fd, -(most // 2), os.SEEK_END)
                kept = os.read(fd, most // 2).partition(b"\n")[2]
                os.ftruncate(fd, 0)
                line = kept + line
            if line:
                os.write(fd, line)
            else:
                os.utime(fd)
        finally:
            os.close(fd)
    except OSError:
        return
