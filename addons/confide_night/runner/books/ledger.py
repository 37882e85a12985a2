"""What this runner has begun, on its own disk, so that nothing is begun twice: neither after a crash, nor for a daemon that was put back to
an older copy, nor for one that lies.

A line is on the disk before anything of its run is started. It is sealed under a key of this machine, as what waits for the daemon is.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from confide_crypto.errors import KeyFileError
from confide_crypto.keys.files import make_private_dir, read_private_file, write_private_file
from confide_proxy.errors import RunnerError, StateError
from confide_proxy.locks import Seat
from confide_proxy.offline.journal import SealedLog

_LEDGER: Final = "ledger"
_KEY: Final = "ledger.key"
_KEY_BYTES: Final = 32
AGAIN: Final = "again"
"""Ended before anything of it ran, or turned away: the only ending after which a slot is begun again."""


class Begun(NamedTuple):
    """A run that was begun: its slot, which time it is (`attempt`), and under which word of the daemon's."""

    task: str
    at: int
    attempt: int
    fence: int

    @property
    def slot(self) -> str:
        """A name for the slot alone, of letters, digits and hyphens."""
        return f"{self.task}-{self.at}"

    @property
    def wire(self) -> dict[str, str | int]:
        """As every word about it carries it (PROTOCOL.md 9.10)."""
        return self._asdict()


@dataclass(frozen=True, slots=True)
class _Line:
    begun: Begun
    began: float
    ended: str


class Ledger:
    """The ledger in a folder; one runner at a time has it. Methods block."""

    def __init__(self, folder: Path) -> None:
        """Raises StateError, KeyFileError: the folder or its key cannot be used; RunnerError: another runner of this machine has it."""
        self._folder = folder
        make_private_dir(folder)
        self._seat = Seat(folder, "ledger")
        with self._able():
            if not self._seat.try_take():
                raise RunnerError(
                    "another runner is at work on this machine", hint="confide runner ls shows what it does"
                )
        self._log = _log(folder)
        with self._able():
            self._log.catch_up()
        if self._log.damaged:
            problem = (
                f"the ledger of this runner is damaged ({self._log.damaged} lines), so what it has begun is not known"
            )
            hint = f"look at the runs with confide task ls; then move {folder / 'ledger'} away, and nothing older is repeated"
            raise RunnerError(problem, hint=hint)

    def begin(self, begun: Begun, now: float) -> None:
        """Write down that a run is about to be started.

        Raises RunnerError: this slot was begun before, and is not to be begun again; StateError: it cannot be written, so nothing begins.
        """
        for line in self._lines(begun.slot):
            if line.begun.attempt >= begun.attempt or line.ended != AGAIN:
                raise RunnerError("this slot was begun here before")
        key = f"{begun.slot}/{begun.attempt}"
        with self._able():
            self._log.append({"id": key, **begun.wire, "began": now, "ended": ""})
            self._log.catch_up()

    def end(self, begun: Begun, state: str) -> None:
        """Write down how it ended: a state of the slot's, or `AGAIN`. Raises StateError."""
        key = f"{begun.slot}/{begun.attempt}"
        place = self._log.live.get(key)
        began = place.head["began"] if place else 0
        with self._able():
            self._log.append({"id": key, **begun.wire, "began": began, "ended": state})
            self._log.catch_up()

    def unfinished(self) -> list[Begun]:
        """What was begun, and did not end here: whatever became of it, nothing of it lives."""
        return [line.begun for line in self._lines() if not line.ended]

    def close(self) -> None:
        """Let another runner have it."""
        self._seat.leave()

    def _lines(self, slot: str = "") -> Iterator[_Line]:
        return (line for line in _lines(self._log) if slot in ("", line.begun.slot))

    @contextmanager
    def _able(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StateError(self._folder, error) from error


def newest(folder: Path, most: int) -> list[tuple[Begun, float, str]]:
    """The runs that a runner here has begun last: when (seconds since 1970), and how they ended ("": not yet). Blocks.

    Raises StateError, KeyFileError: the ledger cannot be read.
    """
    if not (folder / _LEDGER).exists():
        return []
    log = _log(folder)
    try:
        log.catch_up()
    except OSError as error:
        raise StateError(folder, error) from error
    return [(line.begun, line.began, line.ended) for line in [*_lines(log)][-most:][::-1]]


def _log(folder: Path) -> SealedLog:
    path = folder / _KEY
    if not path.exists():
        with suppress(FileExistsError):
            write_private_file(path, secrets.token_bytes(_KEY_BYTES))
    key = read_private_file(path)
    if len(key) != _KEY_BYTES:
        raise KeyFileError(path, "is damaged", hint="move it away together with the ledger beside it")
    return SealedLog(folder / _LEDGER, lambda: key)


def _lines(log: SealedLog) -> Iterator[_Line]:
    for place in log.live.values():
        head = place.head
        begun = Begun(str(head["task"]), int(head["at"]), int(head["attempt"]), int(head["fence"]))
        yield _Line(begun, float(head["began"]), str(head["ended"]))
