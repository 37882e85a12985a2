"""The state of one space in the running daemon: its key, changes of the key, and the open space.

The daemon also writes a list of the locked spaces beside its address file, for the operator's
commands. The list contains no secrets.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from confide_crypto.errors import ConfideError, KeyFileError
from confide_crypto.keys.private_files import read_private_file, write_private_file
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_daemon.datadir.key_state import Custody, Keeper, KeyName
from confide_daemon.errors import LockedError, WrongKeyError
from confide_daemon.spaces.custodian import Custodian
from confide_daemon.spaces.space import Space

log = logging.getLogger(__name__)

# Time until a failed change of a key is retried, as after a full disk.
RETRY_S = 60.0

Follow = Callable[[int, int], None]
"""Callback for progress: the number of pages encrypted with the new key, and the total."""


@dataclass(frozen=True, slots=True)
class FrozenSpace:
    """The key of a space, and the manager of that key, while `Spaces.freeze` keeps the space's
    files unchanged.
    """

    key: bytes | None  # of its database; None: not available
    custodian: Custodian | None = None  # of that key, if the space is closed here and stays so


class SpaceOpener(Protocol):
    """The methods of the pool that the slot of one space uses."""

    def standings(self) -> Mapping[str, CustodyStatus]:
        """Return the lock states to write to the daemon's file, by space id."""
        ...

    def epoch(self, space_id: str) -> int:
        """Return the number of the newest key (epoch) on the space's list of devices, or 0 without
        a list. Blocks on the disk.
        """

    async def get(self, space_id: str) -> Space:
        """Return the open space, opening it if needed."""


class SpaceSlot:
    """The state of a space that was requested at least once since the daemon started.

    Attributes:
        custodian: manages the key of the space's database.
        opening: the task that opens the space, or has opened it; None: closed.
        closing: the task that closes the space, while it runs; it may also drop the key.
        changing: the background task that changes the key.
        unlocking: lock for handing over a key and for choosing the key's keeper.
        door: lock for opening the space and for keeping it closed.
        is_unlocked: set while the space is open or could be opened.
        users: number of connections and jobs that use the space or wait for it.
        listeners: number of sessions that only wait for news of the space. They keep it assigned to
            this node, but neither open nor unlocked.
        holders: number of operations under way on the space; it is not closed before they end.
        last_problems: the space's health problems when it was closed (`Space.health_problems`).
        timer: the timer that drops the key while the space is unused.
        locks_at: when the timer fires, in seconds since 1970; None: no timer runs.
        stranded_records: number of the space's sealed records in a vault that is no longer
            configured, counted when the space was opened.
    """

    def __init__(self, space_id: str, custodian: Custodian, spaces: SpaceOpener, standing: StandingFile) -> None:
        """Make the slot of a closed space.

        `standing`: notified of every change of the key.
        """
        self._space_id = space_id
        self._spaces = spaces
        self._standing = standing
        self._rekeying = asyncio.Lock()
        self.custodian = custodian
        self.opening: asyncio.Task[Space] | None = None
        self.closing: asyncio.Task[None] | None = None
        self.changing: asyncio.Task[None] | None = None
        self.unlocking = asyncio.Lock()
        self.door = asyncio.Lock()
        self.is_unlocked = asyncio.Event()
        self.users = 0
        self.listeners = 0
        self.holders = 0
        self.last_problems: frozenset[str] = frozenset()
        self.timer: asyncio.TimerHandle | None = None
        self.locks_at: float | None = None
        self.stranded_records = 0

    @property
    def failure(self) -> BaseException | None:
        """The error of the last attempt to open the space, or None if it succeeded or there was
        none.
        """
        task = self.opening
        return task.exception() if task is not None and task.done() and not task.cancelled() else None

    @property
    def space(self) -> Space | None:
        task = self.opening
        is_open = task is not None and task.done() and not task.cancelled() and task.exception() is None
        return task.result() if is_open and task is not None else None

    @property
    def may_close(self) -> bool:
        """True if the space is open, no operation uses it, and its key is not being changed."""
        is_changing = self._rekeying.locked() or self.unlocking.locked()
        return not (self.holders or is_changing or self.closing) and self.space is not None and not self.space.is_held

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = self.locks_at = None

    # Changes of the key: for a new epoch of the roster, another keeper, or an operator's request

    def change_key(self) -> None:
        """Start to change the key in the background, if a change is due and the new key is
        available.
        """
        if self.changing is None or self.changing.done():
            self.changing = asyncio.create_task(self._finish_change(), name="confide-rekeying")

    @contextlib.asynccontextmanager
    async def hold_unchanged(self) -> AsyncIterator[bytes | None]:
        """Yield the database's key, or None if it is not available. While the context is active,
        neither the key nor the file changes, and a closed space is not opened.
        """
        async with self._rekeying, contextlib.AsyncExitStack() as stack:
            if self.space is None:
                await stack.enter_async_context(self.door)
                while self.closing is not None:
                    await asyncio.wait([self.closing])
            try:
                _, key = await asyncio.to_thread(self.custodian.opening_key)
            except (LockedError, WrongKeyError):
                yield None
            else:
                yield key

    async def give_to(self, keeper: Keeper, follow: Follow) -> Custody:
        """Make the server or the devices the keeper of the key; return the resulting record of the
        key and its keeper. If the new key is not available yet, the change follows later.

        Raises StorageError or KeyFileError if the change cannot be made or recorded; the present
        key stays in force then.
        """
        async with self.unlocking, self._rekeying:
            await asyncio.to_thread(self.custodian.want, keeper)
        await self._change(follow)
        self._standing.write_soon()
        return self.custodian.custody

    async def renew(self, follow: Follow) -> Custody:
        """Re-encrypt a database whose key the server keeps with the server's next key.

        Raises ConfideError if the devices keep the key; StorageError or KeyFileError if the change
        fails, and the present key stays in force.
        """
        if self.custodian.custody.key.keeper == "caller":
            hint = "a device that leaves gives it a new one: confide device rm, or confide device key rotate on one of them"
            raise ConfideError("the devices of this space keep its key", hint=hint)
        async with self._rekeying:
            space = await self._spaces.get(self._space_id)
            await self._rekey(space, self.custodian.next_generation(), follow)
        return self.custodian.custody

    async def _finish_change(self) -> None:
        while True:
            try:
                # Another epoch may begin meanwhile.
                while await self._change(lambda _done, _total: None):
                    pass
                return
            except ConfideError as error:
                raise_if_cancelled()
                log.warning("the key of space %s could not be changed: %s", self._space_id, error)
            except Exception as error:
                raise_if_cancelled()
                # A bug must not leave a removed device's key in use without a log entry; the
                # exception's text may quote anything.
                log.error("changing the key of space %s broke: %s", self._space_id, type(error).__name__)
            await asyncio.sleep(RETRY_S)

    async def _change(self, follow: Follow) -> bool:
        """Make one change of the key if it is due; return True if it was."""
        async with self._rekeying:
            epoch = await asyncio.to_thread(self._spaces.epoch, self._space_id)
            target = self.custodian.target(epoch)
            if target is None or self.custodian.is_locked:
                return False
            await self._rekey(await self._spaces.get(self._space_id), target, follow)
            return True

    async def _rekey(self, space: Space, target: KeyName, follow: Follow) -> None:
        key = self.custodian.key(target)
        assert key is not None
        # Both names are recorded before two keys exist, so that no interruption leaves a key
        # unknown.
        await asyncio.to_thread(self.custodian.changing, target)
        await space.rekey(key, follow=follow, custody=self.custodian.after(target).to_json())
        await asyncio.to_thread(self.custodian.record_change, target)
        self._standing.write_soon()
        log.info("space %s has a new key: %s %d", self._space_id, target.keeper, target.number)


@dataclass(frozen=True, slots=True)
class CustodyStatus:
    """The lock state of a space whose devices keep its key."""

    is_locked: bool  # no device has brought the key
    # When the key will be forgotten unless a device connects, seconds since 1970; None: in use.
    locks_at: float | None
    stranded_records: int = 0  # known number of its sealed records in a vault that is no longer configured


class StandingFile:
    """The file in which a running daemon publishes the lock states of its spaces. It is written in
    the background.
    """

    def __init__(self, path: Path, spaces: SpaceOpener) -> None:
        """Make the writer of the file about these spaces."""
        self._path = path
        self._spaces = spaces
        self._written_standings: Mapping[str, CustodyStatus] = {}
        self._writing: asyncio.Task[None] | None = None
        self._is_due = False

    def write_soon(self) -> None:
        """Schedule a write of the file, because a lock state may have changed."""
        self._is_due = True
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())

    async def close(self) -> None:
        if self._writing is not None:
            await self._writing
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    async def _write(self) -> None:
        while self._is_due:
            self._is_due = False
            standings = dict(self._spaces.standings())
            if standings == self._written_standings:
                continue
            said = {
                space_id: [one.is_locked, one.locks_at, one.stranded_records] for space_id, one in standings.items()
            }
            try:
                await asyncio.to_thread(write_private_file, self._path, json.dumps(said).encode(), replace=True)
                self._written_standings = standings
            except KeyFileError as error:
                raise_if_cancelled()
                log.warning("which spaces are locked could not be written down: %s", error)


def read_standings(path: Path) -> dict[str, CustodyStatus]:
    """Return the lock states that the running daemon has published, by space id; empty if no daemon
    runs or the file cannot be read.
    """
    try:
        found = json.loads(read_private_file(path))
        return {str(space_id): CustodyStatus(bool(said[0]), said[1], *said[2:3]) for space_id, said in found.items()}
    except (KeyFileError, ValueError, TypeError, LookupError, AttributeError):
        return {}
