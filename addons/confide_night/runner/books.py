"""Local records of the runner: started runs, spending, known devices, and spaces that left their
daemon. No daemon can change them.

They ensure that no slot starts twice and no money is spent twice: after a crash, and with a daemon
that was restored from an older copy or lies. A ledger entry is on the disk before its run starts. A
key of this device encrypts it.
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
from confide_night.errors import RunnerError
from confide_night.order.wire import SlotName
from confide_proxy.errors import StateError
from confide_proxy.link import daemon
from confide_proxy.locks import Seat
from confide_proxy.offline.journal import SealedLog
from confide_proxy.paths import ProxyPaths

T = TypeVar("T")

_LEDGER: Final = "ledger"
_KEY: Final = "ledger.key"
_KEY_BYTES: Final = 32
AGAIN: Final = "again"
"""Outcome of a run that never started or was refused: the only one after which its slot may start
again.
"""


class Begun(NamedTuple):
    """A started run: its slot, the number of its attempt, and the fencing number that the daemon
    gave it.
    """

    task: str
    at: int
    attempt: int
    fence: int

    @property
    def slot(self) -> str:
        """Return a name for the slot, of letters, digits and hyphens."""
        return f"{self.task}-{self.at}"

    @property
    def wire(self) -> SlotName:
        """Return the slot's identity as the requests about it carry it (PROTOCOL.md 9.10)."""
        return {"task": self.task, "at": self.at, "attempt": self.attempt, "fence": self.fence}


@dataclass(frozen=True, slots=True)
class _LedgerLine:
    run: Begun
    began: float
    end_state: str


class RunLedger:
    """The file that records started runs, in a folder. Only one runner at a time can open it.
    Methods block.
    """

    def __init__(self, folder: Path) -> None:
        """Raises StateError or KeyFileError if the folder or its key is unusable; RunnerError if
        another runner of this device has it or the ledger is damaged.
        """
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
        if self._log.damaged_count:
            problem = f"the ledger of this runner is damaged ({self._log.damaged_count} lines), so what it has begun is not known"
            hint = f"look at the runs with confide task ls; then move {folder / 'ledger'} away, and nothing older is repeated"
            raise RunnerError(problem, hint=hint)

    def begin(self, begun: Begun, now: float) -> None:
        """Record that a run is about to start.

        Raises RunnerError if the slot started before and must not start again; StateError if the
        record cannot be written, in which case the run must not start.
        """
        for line in self._lines(begun.slot):
            if line.run.attempt >= begun.attempt or line.end_state != AGAIN:
                raise RunnerError("this slot was begun here before")
        key = f"{begun.slot}/{begun.attempt}"
        with self._able():
            self._log.append({"id": key, **begun.wire, "began": now, "ended": ""})
            self._log.catch_up()

    def end(self, begun: Begun, state: str) -> None:
        """Record the outcome of a run: a state of a slot, or `AGAIN`. Raises StateError if it
        cannot be written.
        """
        key = f"{begun.slot}/{begun.attempt}"
        place = self._log.live.get(key)
        began = place.head["began"] if place else 0
        with self._able():
            self._log.append({"id": key, **begun.wire, "began": began, "ended": state})
            self._log.catch_up()

    def list_unfinished(self) -> list[Begun]:
        """List the runs that started and have no recorded end. After a restart of the runner, none
        of their processes is left.
        """
        return [line.run for line in self._lines() if not line.end_state]

    def close(self) -> None:
        """Release the ledger for another runner."""
        self._seat.leave()

    def _lines(self, slot: str = "") -> Iterator[_LedgerLine]:
        return (line for line in _lines(self._log) if slot in ("", line.run.slot))

    @contextmanager
    def _able(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StateError(self._folder, error) from error


def newest(folder: Path, most: int) -> list[tuple[Begun, float, str]]:
    """List the last runs started on this device, newest first, each with its start (seconds since
    1970) and its outcome ("" if unfinished). Blocks.

    Raises StateError or KeyFileError if the ledger cannot be read.
    """
    if not (folder / _LEDGER).exists():
        return []
    log = _log(folder)
    try:
        log.catch_up()
    except OSError as error:
        raise StateError(folder, error) from error
    return [(line.run, line.began, line.end_state) for line in [*_lines(log)][-most:][::-1]]


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
"""Seconds for which a device counts as new: time for the owner to miss a stolen device and remove
it.
"""


class KnownDevices:
    """The devices that this runner has seen, by their Ed25519 keys. Methods block, and raise
    KeyFileError if the disk fails or the file is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "devices.json"

    def see(self, devices: Iterable[bytes], now: float) -> None:
        """Record the devices on the roster. Those at the first call were there when the runner was
        set up, and do not count as new.
        """
        since = self._read()
        first = now if since else 0.0
        fresh = {key.hex(): first for key in devices if key.hex() not in since}
        if fresh:
            write_private_file(self._file, json.dumps({**since, **fresh}).encode(), replace=True)

    def is_new(self, keys: Iterable[bytes], now: float) -> bool:
        """Return True if none of these keys of one device has been known for `NEW_S` seconds."""
        since = self._read()
        return not any(since.get(key.hex(), now) + NEW_S <= now for key in keys)

    def _read(self) -> dict[str, float]:
        hint = "move it away, and the devices that there are now count as known"
        read = _read_file(self._file, lambda said: {str(key): float(at) for key, at in said.items()}, hint)
        return {} if read is None else read


@dataclass(frozen=True, slots=True)
class MovedSpaces:
    """Records that a space has moved away from its daemon. Methods block, and raise KeyFileError if
    the disk fails.
    """

    paths: ProxyPaths

    def hear(self, reason: ConfideError, daemon_static: bytes, *, now: float) -> None:
        """Record that the daemon says the space has moved away, if that is what `reason` means. The
        daemon is recorded by its X25519 key, since this device may have joined another one
        meanwhile.
        """
        has_left = isinstance(reason, RequestError) and reason.code == "unavailable"
        if has_left and reason.message.startswith(HAS_LEFT) and not self.at():
            said = {"daemon": daemon_static.hex(), "at": now}
            write_private_file(self.paths.left, json.dumps(said).encode(), replace=True)

    def at(self) -> float:
        """Return when the current daemon said that the space has moved away, in seconds since 1970;
        0.0 if it never did.

        Also raises KeyFileError if the file is damaged.
        """
        hint = "have this device join its daemon again: confide join"
        read = _read_file(self.paths.left, lambda said: (str(said["daemon"]), float(said["at"])), hint)
        known = daemon.known_daemon(self.paths) if read is not None else None
        return read[1] if read and read[0] == (known.daemon_static.hex() if known else "") else 0.0

    def why(self) -> str | None:
        """Return the reason why nothing may be executed for the current daemon; None if there is no
        reason. Raises KeyFileError if the file is damaged.
        """
        if not (at := self.at()):
            return None
        day = time.strftime("%Y-%m-%d", time.localtime(at))
        return (
            f"this memory was moved away from its daemon, as that said on {day}, and now it has it again from an older copy: "
            "join the one that has it now, or this one again (confide join)"
        )


class Spending:
    """The amount spent in the current month, by this device's calendar. Methods block, and raise
    KeyFileError if the disk fails.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "spent.json"

    def usd(self) -> float:
        """Return this month's spending in US dollars, including the amount reserved for a run. Also
        raises KeyFileError if the file is damaged.
        """
        hint = "move it away, and what this month has cost so far counts no more"
        read = _read_file(self._file, lambda said: (str(said["month"]), float(said["usd"])), hint)
        return read[1] if read is not None and read[0] == _month() else 0.0

    def hold(self, usd: float) -> None:
        """Reserve the highest price of a run before it starts, since the cost of a killed run is
        unknown.
        """
        self._add(usd)

    def settle(self, held_usd: float, usd: float) -> None:
        """Replace a reservation by the actual cost of the run."""
        self._add(usd - held_usd)

    def _add(self, usd: float) -> None:
        # A run across the end of a month would otherwise make the new month's sum negative.
        total = max(0.0, self.usd() + usd)
        write_private_file(self._file, json.dumps({"month": _month(), "usd": round(total, 6)}).encode(), replace=True)


def _month() -> str:
    return time.strftime("%Y-%m")


def _read_file(path: Path, read: Callable[[Any], T], hint: str) -> T | None:
    """Read a file of the runner; return None if it does not exist. Raises KeyFileError if it is
    damaged.
    """
    if not path.exists():
        return None
    try:
        return read(json.loads(read_private_file(path)))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise KeyFileError(path, "is damaged", hint=hint) from None
