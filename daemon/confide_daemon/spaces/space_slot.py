"""What a daemon knows of one space while it runs: its key and the changes of that, and the space itself while it is open.

Which spaces are locked is written beside the daemon's address for the commands of its operator; nothing of it is secret.
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

# After a change of a key that could not be made, as on a full disk.
RETRY_S = 60.0

Follow = Callable[[int, int], None]
"""Told how many pages are encrypted anew, and of how many."""


@dataclass(frozen=True, slots=True)
class FrozenSpace:
    """A space while nobody changes its files."""

    key: bytes | None  # of its database; None where it is not at hand
    custodian: Custodian | None = None  # of that key, where nobody has the space open here, nor opens it


class SpaceOpener(Protocol):
    """The spaces, as one of them asks for itself."""

    def epoch(self, space_id: str) -> int:
        """The newest of its roster, 0 where there is none; waits for the disk."""

    async def get(self, space_id: str) -> Space:
        """The open space."""


class SpaceSlot:
    """One for each space that was ever asked for.

    Attributes:
        custodian: of its key.
        opening: the task that has opened it, or is about to.
        closing: the task that closes it, and forgets its key where it is locked, while that is under way.
        changing: the task that changes its key beside everything else.
        unlocking: held by who brings a key, or says who is to keep it.
        door: held by who opens it, and by who needs it to stay closed.
        is_unlocked: set while it is open, or could be opened.
        users: how many connections and jobs need it, or wait for it.
        listeners: how many wait for its news without using it: they keep it at this node, and neither open nor unlocked.
        holders: how many have it in hand right now: it is not closed before they are done.
        ailed: what of it did not work when it was closed (`Space.health_problems`).
        timer: until its key is forgotten, while nobody does.
        locks_at: when that will be, seconds since 1970.
        stranded: how many of its sealed records are in a vault that is not configured any more, counted when it was opened.
    """

    def __init__(self, space_id: str, custodian: Custodian, spaces: SpaceOpener, standing: StandingFile) -> None:
        """`standing`: told of every change of the key."""
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
        self.ailed: frozenset[str] = frozenset()
        self.timer: asyncio.TimerHandle | None = None
        self.locks_at: float | None = None
        self.stranded = 0

    @property
    def failure(self) -> BaseException | None:
        """Why it could not be opened the last time, if it could not."""
        task = self.opening
        return task.exception() if task is not None and task.done() and not task.cancelled() else None

    @property
    def space(self) -> Space | None:
        task = self.opening
        is_open = task is not None and task.done() and not task.cancelled() and task.exception() is None
        return task.result() if is_open and task is not None else None

    @property
    def may_close(self) -> bool:
        """Whether it is open, and nobody would notice if it were closed."""
        is_changing = self._rekeying.locked() or self.unlocking.locked()
        return not (self.holders or is_changing or self.closing) and self.space is not None and not self.space.is_held

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = self.locks_at = None

    # Changes of the key: for a new epoch of the roster, for another keeper, or because the operator wants a new one

    def change_key(self) -> None:
        """Changes the key beside everything else, if there is something to change and the new one is at hand."""
        if self.changing is None or self.changing.done():
            self.changing = asyncio.create_task(self._change_until_done(), name="confide-rekeying")

    @contextlib.asynccontextmanager
    async def unchanged(self) -> AsyncIterator[bytes | None]:
        """The key of the database, None where it is not at hand: neither it nor the file is changed for another key within this.

        Nor is it opened, where it is not open now.
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
        """Has the server or the machines keep the key from now on, as soon as that can be: how it is at the end of this.

        Raises StorageError, KeyFileError where it could not be done or written down; the key that is there stays.
        """
        async with self.unlocking, self._rekeying:
            await asyncio.to_thread(self.custodian.want, keeper)
        await self._change(follow)
        self._standing.changed()
        return self.custodian.custody

    async def renew(self, follow: Follow) -> Custody:
        """Encrypts a database whose key the server keeps under its next one. Raises as `give_to`.

        Raises ConfideError where its machines keep the key.
        """
        if self.custodian.custody.key.keeper == "caller":
            hint = "a device that leaves gives it a new one: confide device rm, or confide device key rotate on one of them"
            raise ConfideError("the machines of this space keep its key", hint=hint)
        async with self._rekeying:
            space = await self._spaces.get(self._space_id)
            await self._rekey(space, self.custodian.next_generation(), follow)
        return self.custodian.custody

    async def _change_until_done(self) -> None:
        while True:
            try:
                # Meanwhile another epoch may have begun.
                while await self._change(lambda _done, _total: None):
                    pass
                return
            except ConfideError as error:
                raise_if_cancelled()
                log.warning("the key of space %s could not be changed: %s", self._space_id, error)
            except Exception as error:
                raise_if_cancelled()
                # A bug must not leave a removed device's key in use, untold; its text may quote anything.
                log.error("changing the key of space %s broke: %s", self._space_id, type(error).__name__)
            await asyncio.sleep(RETRY_S)

    async def _change(self, follow: Follow) -> bool:
        """One change, if one is due; whether it was."""
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
        # Both names are written down before there are two keys, so that whatever ends this leaves none unknown.
        await asyncio.to_thread(self.custodian.changing, target)
        await space.rekey(key, follow=follow, custody=self.custodian.after(target).to_json())
        await asyncio.to_thread(self.custodian.changed, target)
        self._standing.changed()
        log.info("space %s has a new key: %s %d", self._space_id, target.keeper, target.number)


@dataclass(frozen=True, slots=True)
class CustodyStatus:
    """How a space stands whose machines keep its key."""

    is_locked: bool  # none of them has brought it
    locks_at: (
        float | None
    )  # when it will be forgotten if nobody comes, seconds since 1970; None while somebody is connected
    stranded: int = 0  # how many of its sealed records are in a vault that is not configured any more, as far as the daemon has seen


class StandingFile:
    """The file of one daemon, from its start to its end. It is written beside everything else, and behind it."""

    def __init__(self, path: Path, standings: Callable[[], Mapping[str, CustodyStatus]]) -> None:
        """`standings`: asked for what is to be written, by the ids of the spaces."""
        self._path = path
        self._standings = standings
        self._written: Mapping[str, CustodyStatus] = {}
        self._writing: asyncio.Task[None] | None = None
        self._is_due = False

    def changed(self) -> None:
        """Something may stand otherwise now."""
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
            standings = dict(self._standings())
            if standings == self._written:
                continue
            said = {space_id: [one.is_locked, one.locks_at, one.stranded] for space_id, one in standings.items()}
            try:
                await asyncio.to_thread(write_private_file, self._path, json.dumps(said).encode(), replace=True)
                self._written = standings
            except KeyFileError as error:
                raise_if_cancelled()
                log.warning("which spaces are locked could not be written down: %s", error)


def read_standings(path: Path) -> dict[str, CustodyStatus]:
    """What the running daemon has written, by the ids of the spaces; nothing where it cannot be read, or none serves."""
    try:
        found = json.loads(read_private_file(path))
        return {str(space_id): CustodyStatus(bool(said[0]), said[1], *said[2:3]) for space_id, said in found.items()}
    except (KeyFileError, ValueError, TypeError, LookupError, AttributeError):
        return {}
