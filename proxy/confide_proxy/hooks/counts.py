"""A log of the outcomes of hooks for `confide doctor`, about thirty bytes a line. It contains no
text of a session.

`CONFIDE_HOOKS=log` keeps a more detailed log beside it. Both files are rotated when they grow
large, and write errors are ignored.
"""

from __future__ import annotations

import os
import time

from confide_crypto import portable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

FOLDER: Final = "hooks"
EVENTS: Final = "events"
LOG: Final = "log"
MOST_BYTES: Final = 64 * 1024
"""About two thousand events; a full file becomes `.1`."""
MOST_LOG_BYTES: Final = 1024 * 1024

ANSWERED: Final = "answered"
SILENT: Final = "silent"
"""The hook had nothing to say."""
POINTED: Final = "pointed"
LATE: Final = "late"
ABSENT: Final = "absent"
"""No process listened."""
FAILED: Final = "failed"
"""The hook failed; one word for the cause follows."""


def note(
    state: str, *, event: str, client: str, outcome: str, ms: int, why: str = "-", is_logged: bool = False
) -> None:
    """Add the outcome of a hook's event to the log. Never raises."""
    now = time.time()
    _append(state, EVENTS, MOST_BYTES, f"{int(now)} {_word(event)} {outcome} {ms} {_word(why)}\n")
    if is_logged:
        line = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.localtime(now))} {_word(client)} {_word(event)} {outcome} {ms} ms {_word(why)}\n"
        _append(state, LOG, MOST_LOG_BYTES, line)


def read(state: str) -> list[tuple[float, str, str, int, str]]:
    """Return the time, event, outcome, duration in milliseconds, and cause of the last events,
    oldest first.
    """
    found: list[tuple[float, str, str, int, str]] = []
    for name in (f"{EVENTS}.1", EVENTS):
        try:
            with open(os.path.join(state, FOLDER, name), encoding="utf-8", errors="replace") as file:
                lines = file.read(2 * MOST_BYTES).splitlines()
        except OSError:
            continue
        for line in lines:
            parts = line.split(" ")
            if len(parts) == 5 and parts[0].isdecimal() and parts[3].isdecimal():
                found.append((float(parts[0]), parts[1], parts[2], int(parts[3]), parts[4]))
    return found


def _append(state: str, name: str, most: int, line: str) -> None:
    path = os.path.join(state, FOLDER, name)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | portable.CLOSED | portable.NO_LINK | portable.NO_WAIT
    try:
        try:
            fd = os.open(path, flags, 0o600)
        except FileNotFoundError:
            os.mkdir(os.path.dirname(path), 0o700)
            fd = os.open(path, flags, 0o600)
        try:
            os.write(fd, line.encode("ascii", "replace"))
            if os.fstat(fd).st_size > most:
                os.replace(path, f"{path}.1")
        finally:
            os.close(fd)
    except OSError:
        return


def _word(text: str) -> str:
    """Reduce a text to one word of a line, since an event's name comes from the calling client."""
    return "".join(letter for letter in text[:32] if letter.isascii() and (letter.isalnum() or letter in ".-_")) or "-"
