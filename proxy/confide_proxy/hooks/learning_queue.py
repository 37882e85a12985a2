"""Pointers: where in a client's own transcript something may be learned from (docs/learning.md). A hook writes one, the learner reads them.

A pointer is one line of JSON in `learn/pointers.jsonl` of the state folder, and no text of the session. Hooks run at every turn of a
person who waits, so this module needs the standard library alone, and `append` never raises.

Writers take the file's lock for some microseconds: so no line is torn, none is lost while another process shortens the file, and what a
full disk has cut off is taken back.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time

from confide_crypto import atomic

TYPE_CHECKING = False
if TYPE_CHECKING:  # to import it costs a hook a millisecond
    from collections.abc import Mapping
    from typing import Any, Final

MOST_LINES: Final = 10_000
MOST_AGE_S: Final = 30 * 86_400
MOST_BYTES: Final = 32 * 2**20
MORE_CHARS: Final = 16_384
"""Of each value of `more`: a client's own summary of a session takes some 8,000."""
_SHORTEST_LINE: Final = 96
_MOST_TEXT: Final = 4096
_MOST_MORE: Final = 8
_MOST_CONFIG: Final = 2**20
_LOCK_S: Final = 0.1
"""Who holds it for longer is stopped, and a hook does not wait for that."""
_PATIENT_LOCK_S: Final = 5.0
"""The learner has time, and fifty hooks at once may be before it."""
_LOOK_AGAIN_S: Final = 0.001
_REOPENED: Final = 5
_MODES: Final = ("suggest", "auto")


def learns(config: str | os.PathLike[str]) -> bool:
    """Whether the configuration (`proxy.toml`) asks for learning, or the plugin's answer where that says nothing. False where it cannot be
    read, or somebody else could have written it.

    The whole check of who could have (docs/decisions/0020) is the learner's: what a pointer says is in the client's own files already.
    """
    try:
        fd = os.open(config, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            is_ours = status.st_uid in (os.geteuid(), 0) and not status.st_mode & stat.S_IWOTH
            if not stat.S_ISREG(status.st_mode) or not is_ours:
                return False
            data = file.read(_MOST_CONFIG)
    except FileNotFoundError:
        data = b""
    except OSError:
        return False
    if b"learn" not in data:
        return _answered() in _MODES
    import tomllib  # half of what a hook takes, and only who learns pays for it

    try:
        section = tomllib.loads(data.decode("utf-8")).get("learn", {})
    except (ValueError, RecursionError):
        return False
    if not isinstance(section, dict):
        return False
    return (section["mode"] if "mode" in section else _answered()) in _MODES


def _answered() -> str:
    from confide_proxy.clients import plugin_answers  # read at the end of a turn alone

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
    """Add a pointer, if this machine learns; whether it was written. Nothing is written, no folder either, where it does not learn.

    Args:
        state: the state folder, which is there.
        config: `proxy.toml`, which need not be.
        client: as the transcripts are called: "claude-code", "codex".
        transcript: the file's path; "" where the client names none.
        offset: the size of it now, in bytes.
        event: the client's own name of it.
        more: what the event says beside it and no transcript has, such as `compact_summary` and `cwd`; cut at `MORE_CHARS`.
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
        fd = _locked(file)
    except (OSError, ValueError):
        return False
    try:
        return _appended(fd, file, line)
    except OSError:
        return False
    finally:
        os.close(fd)


def read(state: str | os.PathLike[str]) -> tuple[list[dict[str, Any]], bytes]:
    """The pointers of the last 30 days, the oldest first, and the lines as they are, to `forget` them by. What is no pointer is left out.

    Raises OSError: the file cannot be read.
    """
    try:
        fd = os.open(os.path.join(state, "learn", "pointers.jsonl"), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return [], b""
    with open(fd, "rb") as file:
        data = file.read(2 * MOST_BYTES)
    lines = data[: data.rfind(b"\n") + 1]
    oldest = time.time() - MOST_AGE_S
    found = (_pointer(line) for line in lines.splitlines())
    return [pointer for pointer in found if pointer is not None and pointer["at"] >= oldest], lines


def forget(state: str | os.PathLike[str], lines: bytes) -> None:
    """Take out the lines that `read` has given; none where the file was shortened since, so that they come once more.

    Raises OSError: the disk refuses, or somebody has held the lock for `_PATIENT_LOCK_S`; then all of them are still there.
    """
    file = os.path.join(state, "learn", "pointers.jsonl")
    if not lines or not os.path.exists(file):
        return
    fd = _locked(file, _PATIENT_LOCK_S)
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


def _locked(file: str, wait_s: float = _LOCK_S) -> int:
    """The file, with its lock, as it is called now: another process may have put a shorter one in its place. Raises OSError."""
    end = time.monotonic() + wait_s
    for _ in range(_REOPENED):
        fd = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
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


def _appended(fd: int, file: str, line: bytes) -> bool:
    size = os.fstat(fd).st_size
    if size >= MOST_LINES * _SHORTEST_LINE and (shorter := _shortened(_all(fd))) is not None:
        _replace(file, shorter + line)
        return True
    if size and os.pread(fd, 1, size - 1) != b"\n":
        line = b"\n" + line  # somebody was killed in the middle of theirs
    if os.write(fd, line) == len(line):
        return True
    os.ftruncate(fd, size)
    return False


def _all(fd: int) -> bytes:
    data = bytearray()
    while part := os.pread(fd, 2**20, len(data)):
        data += part
    return bytes(data)


def _shortened(data: bytes) -> bytes | None:
    """The newest nine of ten lines, and none over 30 days; None while it is short enough."""
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
    """Put other lines in the file's place, whole or not at all; the caller has its lock. Raises OSError."""
    atomic.write(file, data, is_kept=False)
