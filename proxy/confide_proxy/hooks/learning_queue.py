"""A queue of references to transcripts of clients, from which Confide may learn (docs/learning.md).
Hooks append to it, and the learner reads it.

A reference, called a pointer, is one JSON line in `learn/pointers.jsonl` of the state folder. It
contains no text of the session. Hooks run in every turn while the user waits, so this module needs
only the standard library, and `append` never raises.

Writers lock the file for some microseconds. So no line is torn, and none is lost while another
process shortens the file. A line that a full disk has truncated is removed.
"""

from __future__ import annotations

import json
import os
import stat
import time

from confide_crypto import atomic, portable

TYPE_CHECKING = False
if TYPE_CHECKING:  # to import it costs a hook a millisecond
    from collections.abc import Mapping
    from typing import Any, Final

MOST_LINES: Final = 10_000
MOST_AGE_S: Final = 30 * 86_400
MOST_BYTES: Final = 32 * 2**20
MORE_CHARS: Final = 16_384
"""Most characters of each value of `more`; a client's own summary of a session takes about 8,000.
"""
_SHORTEST_LINE: Final = 96
_MOST_TEXT: Final = 4096
_MOST_MORE: Final = 8
_MOST_CONFIG: Final = 2**20
_LOCK_S: Final = 0.1
"""A process that holds the lock longer is suspended, and a hook doesn't wait for it."""
_PATIENT_LOCK_S: Final = 5.0
"""The learner waits longer, since fifty hooks at once may be before it."""
_LOOK_AGAIN_S: Final = 0.001
_REOPENED: Final = 5
_MODES: Final = ("suggest", "auto")


def learns(config: str | os.PathLike[str]) -> bool:
    """Return True if the user has enabled learning in `proxy.toml`, or else by the answer given to
    the plugin. False if the file is unreadable, or another user could have written it.

    The learner itself makes the full check of who could have written the file
    (docs/decisions/0020). A pointer contains nothing that isn't in the client's own files.
    """
    try:
        fd = os.open(config, os.O_RDONLY | portable.NO_WAIT | portable.CLOSED)
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            is_ours = status.st_uid in (portable.user(), 0) and not status.st_mode & portable.ANYBODY_WRITES
            if not stat.S_ISREG(status.st_mode) or not is_ours:
                return False
            data = file.read(_MOST_CONFIG)
    except FileNotFoundError:
        data = b""
    except OSError:
        return False
    if b"learn" not in data:
        return _plugin_learning() in _MODES
    import tomllib  # half of a hook's time, so only if needed

    try:
        section = tomllib.loads(data.decode("utf-8-sig")).get("learn", {})
    except (ValueError, RecursionError):
        return False
    if not isinstance(section, dict):
        return False
    return (section["mode"] if "mode" in section else _plugin_learning()) in _MODES


def _plugin_learning() -> str:
    from confide_proxy.clients import plugin_answers  # read only at the end of a turn

    return plugin_answers.learning()


def append(
    state: str | os.PathLike[str],
    *,
    config: str | os.PathLike[str],
    session: str,
    client: str,
    transcript: str,
    offset: int,
    event: str,
    more: Mapping[str, str] | None = None,
) -> bool:
    """Append a reference to a place in a transcript if learning is enabled, and return True if it
    was written. Otherwise write nothing and create no folder.

    Args:
        state: the state folder, which must exist.
        config: path of `proxy.toml`, which need not exist.
        session: the client's id of the session.
        client: name of the client that writes the transcript, such as "claude-code" or "codex".
        transcript: path of the transcript file; "" if the client gives none.
        offset: current size of that file in bytes.
        event: the client's name of the event.
        more: data of the event that no transcript contains, such as `compact_summary` and `cwd`;
            each value is cut at `MORE_CHARS`.
    """
    if os.environ.get("CONFIDE_LEARNING") or not learns(config):
        return False
    pointer: dict[str, object] = {
        "at": int(time.time()),
        "session": session[:_MOST_TEXT],
        "client": client[:_MOST_TEXT],
        "transcript": transcript[:_MOST_TEXT],
        "offset": max(0, offset),
        "event": event[:_MOST_TEXT],
    }
    if more:
        pointer["more"] = {key[:64]: value[:MORE_CHARS] for key, value in list(more.items())[:_MOST_MORE]}
    line = json.dumps(pointer, separators=(",", ":")).encode() + b"\n"
    try:
        folder = os.path.join(state, "learn")
        if not os.path.isdir(folder):
            os.mkdir(folder, 0o700)
    except FileExistsError:
        pass  # fifty hooks at once
    except OSError:
        return False
    try:
        file = os.path.join(folder, "pointers.jsonl")
        fd = _open_locked(file)
    except (OSError, ValueError):
        return False
    try:
        return _append(fd, file, line)
    except OSError:
        return False
    finally:
        os.close(fd)


def read(state: str | os.PathLike[str]) -> tuple[list[dict[str, Any]], bytes]:
    """Return the queued references of the last 30 days, oldest first, and all lines as bytes, which
    `forget` takes. Invalid lines are skipped.

    Raises OSError if the file cannot be read.
    """
    try:
        fd = os.open(os.path.join(state, "learn", "pointers.jsonl"), os.O_RDONLY | portable.CLOSED | portable.NO_LINK)
    except FileNotFoundError:
        return [], b""
    with open(fd, "rb") as file:
        data = file.read(2 * MOST_BYTES)
    lines = data[: data.rfind(b"\n") + 1]
    oldest = time.time() - MOST_AGE_S
    found = (_pointer(line) for line in lines.splitlines())
    return [pointer for pointer in found if pointer is not None and pointer["at"] >= oldest], lines


def forget(state: str | os.PathLike[str], lines: bytes) -> None:
    """Remove the lines that `read` has returned. If another process has shortened the file since,
    nothing is removed, and the next `read` returns them again.

    Raises OSError if the write fails, or if another process keeps the lock for `_PATIENT_LOCK_S`
    seconds; no line is removed then.
    """
    file = os.path.join(state, "learn", "pointers.jsonl")
    if not lines or not os.path.exists(file):
        return
    fd = _open_locked(file, _PATIENT_LOCK_S)
    try:
        data = _all(fd)
        if data.startswith(lines):
            _replace(file, data[len(lines) :])
    finally:
        os.close(fd)


def _pointer(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    texts, numbers = ("session", "client", "transcript", "event"), ("at", "offset")
    is_one = all(isinstance(found.get(key), str) for key in texts) and all(
        type(found.get(key)) is int for key in numbers
    )
    if not is_one:
        return None
    more = found.get("more")
    kept = {key: value for key, value in more.items() if isinstance(value, str)} if isinstance(more, dict) else {}
    return {**found, "more": kept}


def _open_locked(file: str, wait_s: float = _LOCK_S) -> int:
    """Open and lock the current file, which another process may have replaced by a shorter one.
    Raises OSError.
    """
    end = time.monotonic() + wait_s
    for _ in range(_REOPENED):
        fd = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | portable.CLOSED | portable.NO_LINK, 0o600)
        try:
            while True:
                try:
                    portable.lock(fd)
                    break
                except BlockingIOError:
                    if time.monotonic() >= end:
                        raise
                    time.sleep(_LOOK_AGAIN_S)
            try:
                if os.stat(file, follow_symlinks=False).st_ino == os.fstat(fd).st_ino:
                    return fd
            except FileNotFoundError:
                pass
        except OSError:
            os.close(fd)
            raise
        os.close(fd)
    raise OSError(None, "the file is replaced again and again")


def _append(fd: int, file: str, line: bytes) -> bool:
    size = os.fstat(fd).st_size
    if size >= MOST_LINES * _SHORTEST_LINE and (shorter := _shorten(_all(fd))) is not None:
        _replace(file, shorter + line)
        return True
    if size and portable.read_at(fd, 1, size - 1) != b"\n":
        line = b"\n" + line  # a killed writer left an incomplete line
    if os.write(fd, line) == len(line):
        return True
    os.ftruncate(fd, size)
    return False


def _all(fd: int) -> bytes:
    data = bytearray()
    while part := portable.read_at(fd, 2**20, len(data)):
        data += part
    return bytes(data)


def _shorten(data: bytes) -> bytes | None:
    """Return the newest nine tenths of the lines, none older than 30 days; None if the file is
    short enough.
    """
    lines = data.splitlines(keepends=True)
    if len(lines) < MOST_LINES and len(data) < MOST_BYTES:
        return None
    oldest = time.time() - MOST_AGE_S
    kept: list[bytes] = []
    size = 0
    for line in reversed(lines[-(MOST_LINES * 9 // 10) :]):
        pointer = _pointer(line)
        if pointer is None:
            continue
        size += len(line)
        if pointer["at"] < oldest or size > MOST_BYTES * 9 // 10:
            break
        kept.append(line if line.endswith(b"\n") else line + b"\n")
    return b"".join(reversed(kept))


def _replace(file: str, data: bytes) -> None:
    """Replace the file's content atomically; the caller holds its lock. Raises OSError."""
    atomic.write(file, data, is_kept=False)
