"""What this runner has begun and spent, whom it knows, and whether its daemon was left, on its own disk: no daemon can make it forget.

So nothing is begun twice: neither after a crash, nor for a daemon that was put back to an older copy, nor for one that lies; and money is
not given out again. A line of the ledger is on the disk before anything of its run is started, sealed under a key of this machine, as what
waits for the daemon is.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from confide_crypto.errors import ConfideError, KeyFileError, RequestError
from confide_crypto.keys.private_files import make_private_dir, read_private_file, write_private_file
from confide_memory.wire.operation import HAS_LEFT
from confide_night.order.wire import SlotName
from confide_proxy.errors import RunnerError, StateError
from confide_proxy.link import daemon
from confide_proxy.locks import Seat
from confide_proxy.offline.journal import SealedLog
from confide_proxy.paths import ProxyPaths

T = TypeVar("T")

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
    def wire(self) -> SlotName:
        """As every word about it carries it (PROTOCOL.md 9.10)."""
        return {"task": self.task, "at": self.at, "attempt": self.attempt, "fence": self.fence}


@dataclass(frozen=True, slots=True)
class _LedgerLine:
    begun: Begun
    began: float
    ended: str


class RunLedger:
    """The ledger in a folder; one runner at a time has it. Methods block."""

    def __init__(self, folder: Path) -> None:
        """Raises StateError, KeyFileError: the folder or its key cannot be used; RunnerError: another runner of this machine has it."""
        self._folder = folder
        make_private_dir(folder)
        self._seat = Seat(folder, "ledger")
        with self._able():
            if not self._seat.try_take():
                raise RunnerError(
                    "another runner is at work on this device", hint="confide task runner --runs shows what it does"
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

    def _lines(self, slot: str = "") -> Iterator[_LedgerLine]:
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


def _lines(log: SealedLog) -> Iterator[_LedgerLine]:
    for place in log.live.values():
        head = place.head
        begun = Begun(str(head["task"]), int(head["at"]), int(head["attempt"]), int(head["fence"]))
        yield _LedgerLine(begun, float(head["began"]), str(head["ended"]))


NEW_S: Final = 86_400.0
"""For so long a device is new: time for its owner to miss what was stolen, and to remove it."""


class KnownDevices:
    """Devices by their Ed25519 keys. Methods block, and raise KeyFileError where the disk refuses or the file is damaged."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "devices.json"

    def see(self, devices: Iterable[bytes], now: float) -> None:
        """Take down those that are on the roster now. Who is there at the first look was there when this
        runner was set up, and is not new."""
        since = self._read()
        first = now if since else 0.0
        fresh = {key.hex(): first for key in devices if key.hex() not in since}
        if fresh:
            write_private_file(self._file, json.dumps({**since, **fresh}).encode(), replace=True)

    def is_new(self, keys: Iterable[bytes], now: float) -> bool:
        """Whether a device is, which has or had these keys."""
        since = self._read()
        return not any(since.get(key.hex(), now) + NEW_S <= now for key in keys)

    def _read(self) -> dict[str, float]:
        hint = "move it away, and the devices that there are now count as known"
        read = _noted(self._file, lambda said: {str(key): float(at) for key, at in said.items()}, hint)
        return {} if read is None else read


@dataclass(frozen=True, slots=True)
class MovedSpaces:
    """What this machine has noted. Methods block, and raise KeyFileError where the disk refuses."""

    paths: ProxyPaths

    def hear(self, reason: ConfideError, daemon_static: bytes, *, now: float) -> None:
        """Note it if this is what the daemon with this X25519 key says; the machine may have gone over to another one meanwhile."""
        has_left = isinstance(reason, RequestError) and reason.code == "unavailable"
        if has_left and reason.message.startswith(HAS_LEFT) and not self.at():
            said = {"daemon": daemon_static.hex(), "at": now}
            write_private_file(self.paths.left, json.dumps(said).encode(), replace=True)

    def at(self) -> float:
        """When this machine heard it of the daemon that it has now, in seconds since 1970; 0.0: it never did.

        Raises KeyFileError too where the file is no longer what was written there.
        """
        hint = "have this device join its daemon again: confide join"
        read = _noted(self.paths.left, lambda said: (str(said["daemon"]), float(said["at"])), hint)
        known = daemon.known(self.paths) if read is not None else None
        return read[1] if read and read[0] == (known.daemon_static.hex() if known else "") else 0.0

    def why(self) -> str | None:
        """Why nothing is claimed of the daemon that answers now; None: nothing stands against it. Raises as `at`."""
        if not (at := self.at()):
            return None
        day = time.strftime("%Y-%m-%d", time.localtime(at))
        return (
            f"this memory was moved away from its daemon, as that said on {day}, and now it has it again from an older copy: "
            "join the one that has it now, or this one anew (confide join)"
        )


class Spending:
    """The spending of a month, of this machine's calendar. Methods block, and raise KeyFileError where the disk refuses."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "spent.json"

    def usd(self) -> float:
        """Spent this month, with what is held for a run. Raises KeyFileError too where the file is no longer what was written there."""
        hint = "move it away, and what this month has cost so far counts no more"
        read = _noted(self._file, lambda said: (str(said["month"]), float(said["usd"])), hint)
        return read[1] if read is not None and read[0] == _month() else 0.0

    def hold(self, usd: float) -> None:
        """Count what a run may cost, before it begins: one that is killed has cost something that nobody knows."""
        self._add(usd)

    def settle(self, held_usd: float, usd: float) -> None:
        """A run has cost that, of what was held for it."""
        self._add(usd - held_usd)

    def _add(self, usd: float) -> None:
        # A run over midnight of the last day gives back to a month that is new.
        total = max(0.0, self.usd() + usd)
        write_private_file(self._file, json.dumps({"month": _month(), "usd": round(total, 6)}).encode(), replace=True)


def _month() -> str:
    return time.strftime("%Y-%m")


def _noted(path: Path, read: Callable[[Any], T], hint: str) -> T | None:
    """What a file of this runner's says; None: there is none. Raises KeyFileError: it is not what was written there."""
    if not path.exists():
        return None
    try:
        return read(json.loads(read_private_file(path)))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise KeyFileError(path, "is damaged", hint=hint) from None
