"""The pool of open spaces. It opens each database once for all connections, and only while the
database's key is available.

An operation wraps its use of a space in `Spaces.hold`. A space that nothing has held for a while is
closed; the next operation opens it again.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from confide_crypto.errors import ConfideError, KeyFileError
from confide_crypto.sealing.roster import Roster
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_daemon.access import space_removal
from confide_daemon.access.registry import RegistryState
from confide_daemon.config import ChunkSettings
from confide_daemon.datadir.disk import Disk
from confide_daemon.datadir.key_state import Custody, Keeper, KeyName
from confide_daemon.errors import CrowdedError, EngineError, FencedError, LockedError, StorageError, WrongKeyError
from confide_daemon.sealing.rosters import Rosters
from confide_daemon.spaces.custodian import Custodian, sweep
from confide_daemon.spaces.file import OPEN
from confide_daemon.spaces.open_limit import CLOSE_AFTER_S, MOST_OPEN, OpenSpaceLimit
from confide_daemon.spaces.space import Space, SpaceHost, SpaceShared
from confide_daemon.spaces.space_slot import CustodyStatus, Follow, FrozenSpace, SpaceSlot, StandingFile
from confide_daemon.store.logs import Lease, Leases
from confide_daemon.store.migrations import migrations
from confide_daemon.store.space_store import Store

log = logging.getLogger(__name__)

# The name that `Model.none` uses: no model is configured.
NO_MODEL = "none"
# Breaches that are searched for an open one; the database keeps no more.
BREACHES = 1000
LOCK_AFTER_S = 43_200.0
# Spaces closed at once when the daemon ends: most of the time is spent waiting for the disk, and
# hundreds may be open.
CLOSED_AT_ONCE = 8
# Share of a core for checks of closed spaces. Each takes a millisecond or two; ten thousand take
# half an hour.
LOOKS_SHARE = 0.01
# Longest pause after a check that took long, as of a large space on a busy computer.
LONGEST_PAUSE_S = 60.0
# Files with changes that the shared store has lost (`store.log.snapshot.AHEAD`), until an operator
# moves them away.
_AHEAD = "*.db.ahead*"


class SpacesHost:
    """Callbacks from the pool to the daemon, which overrides them; by default they do nothing."""

    def announce_news(self, space_id: str) -> None:
        """Notify the devices of a space that it was unlocked, or that it needs a key."""

    def send_elsewhere(self, space_id: str) -> None:
        """Make the sessions of a space reconnect to the node that holds it now."""

    def around(self, _space_id: str) -> tuple[int | None, bool | None]:
        """Return two facts that the space itself does not know: the number of credentials stored in
        clear (None: unknown), and True if a verified backup exists (None: unknown).
        """
        return None, None


class Spaces(SpaceHost):
    """The pool: opens a space on first use, and closes it when it has been unused for a while or
    its key is dropped.
    """

    def __init__(
        self,
        state: RegistryState,
        shared: SpaceShared,
        *,
        keeper: Keeper = "server",
        lock_after_s: float = LOCK_AFTER_S,
        close_after_s: float = CLOSE_AFTER_S,
        most_open: int = MOST_OPEN,
        leases: Leases | None = None,
    ) -> None:
        """Make the pool; all spaces are closed.

        Args:
            shared: settings and resources of all spaces; its vault is closed with the pool.
            keeper: the keeper of new spaces' keys.
            lock_after_s: time after which a key that devices keep is forgotten once the last of
                them has disconnected.
            close_after_s: time without use after which a space is closed.
            most_open: open spaces at once; above, the longest unused is closed for the next.
            leases: leases of the logs whose copies the files are; None: there are no logs. Closed
                with the pool.
        """
        self._began_at = time.time()
        self.disk = shared.disk or Disk(state.folder.root)
        """Checked before writes that can wait; the daemon updates it."""
        self._shared = replace(shared, disk=self.disk)
        self._leases = leases
        self._ahead = set(state.folder.spaces.glob(_AHEAD)) if leases is not None else set()
        self._renewing: set[asyncio.Task[None]] = set()
        self._state = state
        self._keeper: Keeper = keeper
        self._lock_after_s = lock_after_s
        self._entries: dict[str, SpaceSlot] = {}
        self._room = OpenSpaceLimit(self, most_open, close_after_s)
        self._unreadable: set[str] = set()  # spaces whose keys' keeper is unknown
        self._standing = StandingFile(state.folder.standing, self)
        self.rosters = Rosters(state.registry)
        self.host = SpacesHost()
        sweep(state.folder.spaces)
        space_removal.finish(state)
        if leases is not None:
            leases.on_lost = self._on_lost
            leases.start()

    @asynccontextmanager
    async def hold(self, space_id: str) -> AsyncIterator[Space]:
        """Open the space if needed, and keep it open while the context is active.

        Raises LockedError if no device has handed over its key, StorageError if it cannot be
        opened, CrowdedError if too many other spaces are in use.
        """
        entry = self._entry(space_id)
        entry.holders += 1
        try:
            yield await self.get(space_id)
        finally:
            entry.holders -= 1
            self._room.mark_used(space_id)

    async def get(self, space_id: str) -> Space:
        """Return the open space, opening it if needed. It may be closed at any time unless `hold`
        keeps it open.

        Raises LockedError if no device has handed over its key, StorageError if it cannot be
        opened, CrowdedError if too many other spaces are in use.
        """
        entry = self._entry(space_id)
        if self._leases is not None:
            await self._leases.confirm()
        while entry.closing is not None:
            await asyncio.shield(entry.closing)
        task = entry.opening
        if task is None or (task.done() and task.exception() is not None):
            # A task of its own: a connection that ends while it waits must not interrupt the
            # opening for the others.
            task = entry.opening = asyncio.create_task(self._open(space_id, entry))
            task.add_done_callback(lambda _task: self._lock_later(space_id, entry))
        return await asyncio.shield(task)

    @contextmanager
    def mark_used(self, space_id: str) -> Iterator[None]:
        """Count a user of the space while the context is active. As long as a space has users, the
        key that its devices have handed over stays in memory.

        Raises StorageError or KeyFileError if the record of who keeps the key cannot be read.
        """
        entry = self._entry(space_id)
        entry.users += 1
        entry.stop_timer()
        self._standing.write_soon()
        try:
            yield
        finally:
            entry.users -= 1
            self._lock_later(space_id, entry)
            self._leave_later(space_id, entry)

    @contextmanager
    def staying(self, space_id: str) -> Iterator[None]:
        """Keep the space assigned to this node while the context is active, even if it is closed or
        locked, because a session here waits for its news.
        """
        entry = self._entry(space_id)
        entry.listeners += 1
        try:
            yield
        finally:
            entry.listeners -= 1
            self._leave_later(space_id, entry)

    @property
    def leases(self) -> Leases | None:
        """The rights of this node to write to the spaces' logs, or None without a shared store."""
        return self._leases

    @property
    def chunks(self) -> ChunkSettings:
        """The settings by which documents of all spaces are cut into chunks."""
        return self._shared.settings.chunks

    @asynccontextmanager
    async def freeze(self, space_id: str) -> AsyncIterator[FrozenSpace]:
        """Yield the key of a space whose files are to be copied. While the context is active its
        file is not replaced, and a closed space is not opened.
        """
        is_known = space_id in self._entries
        try:
            entry = self._entry(space_id)
        except ConfideError:
            yield FrozenSpace(None)  # the keeper of its key is unknown, so it cannot be opened either
            return
        try:
            async with entry.hold_unchanged() as key:
                yield FrozenSpace(key, entry.custodian if entry.space is None else None)
        finally:
            # An unused space needs no entry: there may be ten thousand.
            is_wanted = entry.users or entry.listeners or entry.holders
            is_used = entry.opening or entry.closing or is_wanted or entry.custodian.is_holding
            if not is_known and not is_used:
                self._entries.pop(space_id, None)

    def key(self, space_id: str, name: KeyName) -> bytes | None:
        """Return a present or past key of a space's database, or None if a device has to hand it
        over first.
        """
        if name.keeper == "server":
            return self._state.master.space_key(space_id, name.number)
        entry = self._entries.get(space_id)
        return None if entry is None else entry.custodian.key(name)

    async def wait_unlocked(self, space_id: str) -> Space:
        """Wait until the space's key is available; return the open space. Raises StorageError if it
        cannot be opened.
        """
        entry = self._entry(space_id)
        while True:
            await entry.is_unlocked.wait()
            try:
                return await self.get(space_id)
            except LockedError:
                raise_if_cancelled()

    async def unlock(self, space_id: str, keys: Mapping[int, bytes], *, may_change: bool) -> None:
        """Accept database keys from a device of the space, and open the space with them. Only keys
        that are needed are kept (`missing_epochs`).

        Args:
            keys: keys of the database by epoch, 32 bytes each.
            may_change: True if the device may choose the key for future encryption.

        Raises WrongKeyError if the keys do not open the database; StorageError if the space cannot
        be opened; KeyFileError if the keeper of the key cannot be recorded.
        """
        entry = self._entry(space_id)
        async with entry.unlocking:
            if entry.closing is not None:
                await asyncio.shield(entry.closing)
            epoch = await asyncio.to_thread(self.epoch, space_id)
            is_open = entry.space is not None and entry.closing is None
            was_lost = entry.custodian.is_lost
            try:
                await asyncio.to_thread(entry.custodian.add_keys, keys, epoch, may_change=may_change, is_open=is_open)
            except WrongKeyError:
                if entry.custodian.is_lost and not was_lost:
                    self.host.announce_news(space_id)  # the devices should bring all of their keys now
                raise
            try:
                await self.get(space_id)
            except LockedError:
                return  # more keys are needed
            except WrongKeyError:
                entry.custodian.forget()
                raise
        entry.change_key()

    # Queries of connections (PROTOCOL.md 10.9): answered from memory, without waiting

    def custody(self, space_id: str) -> Keeper:
        return self._entry(space_id).custodian.custody.key.keeper

    def is_locked(self, space_id: str) -> bool:
        """Return True if the space cannot be used before a device hands over its key."""
        entry = self._entry(space_id)
        return isinstance(entry.failure, LockedError) or (entry.space is None and entry.custodian.is_locked)

    def missing_epochs(self, space_id: str, epoch: int) -> list[int]:
        """Return the numbers (epochs) of the database keys that a device should hand over, to open
        the space or to change its key. `epoch`: the newest key number on the space's roster.
        """
        return self._entry(space_id).custodian.missing_epochs(epoch)

    def health_problems(self) -> set[str]:
        """Return the health problems of all spaces together (`Space.health_problems`). A locked
        space counts as healthy.
        """
        is_cut_off = self._leases is not None and self._leases.failure is not None
        found = {"storage"} if self._unreadable or is_cut_off or any(map(Path.exists, self._ahead)) else set()
        for space_id, entry in self._entries.items():
            if entry.space is not None:
                found |= set() if self._is_removed(space_id, entry.space) else entry.space.health_problems()
                continue
            found |= entry.last_problems
            passing = (LockedError, CrowdedError, EngineError)
            is_broken = entry.failure is not None and not isinstance(entry.failure, passing)
            if is_broken or (entry.custodian.is_lost and entry.custodian.custody.key.keeper == "server"):
                found.add("storage")
        # Without a configured model, none can fail.
        return found - {"embedding"} if self._is_without_model else found

    def _is_removed(self, space_id: str, space: Space) -> bool:
        """Return True if an operator has removed the space while the daemon has it open: then its
        missing file is no problem.
        """
        return not space.has_file and space_id not in self._state.registry.spaces().values()

    # Status for the operator: answered from memory

    def open_spaces(self) -> dict[str, Space]:
        """Return the open spaces by id."""
        return {space_id: entry.space for space_id, entry in self._entries.items() if entry.space is not None}

    def states(self) -> dict[str, str]:
        """Return the state of each space that was used since the start, by id: `open`, `locked`,
        `closed` or `damaged`.
        """
        return dict.fromkeys(self._unreadable, "damaged") | {
            space_id: _state(entry) for space_id, entry in self._entries.items()
        }

    def waiting(self) -> dict[str, int]:
        """Return how many chunks still wait for a vector, for each open space by id."""
        return {space_id: space.waiting for space_id, space in self.open_spaces().items()}

    def providers(self) -> dict[str, bool]:
        """Return the embedding providers by name, each with True if its model is available now."""
        return {
            model.label: model.is_up for model in self._shared.models if model.name != NO_MODEL and not model.is_aside
        }

    async def look_at_all(self) -> None:
        """Check all closed spaces one by one. Open those with a problem, so that it is repaired and
        reported.

        A pause follows each check, so that the checks use at most `LOOKS_SHARE` of a core, however
        many spaces there are.
        """
        for space_id in (await asyncio.to_thread(self._state.registry.spaces)).values():
            started = time.thread_time()
            try:
                await self._drop_overtaken(space_id)
                is_sound, cpu_s = await asyncio.to_thread(self._look, space_id)
                self._unreadable.discard(space_id)
            except ConfideError as error:
                self._unreadable.add(space_id)
                log.error("space %s cannot be opened: %s", space_id, error)
                continue
            if not is_sound:
                with suppress(ConfideError):
                    await self.get(space_id)
                    self._entry(space_id).change_key()
            cpu_s += time.thread_time() - started
            await asyncio.sleep(min(cpu_s / LOOKS_SHARE, LONGEST_PAUSE_S))

    async def _drop_overtaken(self, space_id: str) -> None:
        """Remove the file of a closed space from which another node has gone on, if the log no longer
        needs it: it may hold what was forgotten since.
        """
        leases, path = self._leases, self._state.folder.space(space_id)
        if leases is None or not any(path.parent.glob(f"{path.name}*")):
            return

        def work(key: bytes) -> None:
            with leases.view(space_id) as lease:
                if lease is not None and lease.drop_overtaken(path, key):
                    log.info("an old copy of space %s was removed", space_id)

        async with self.freeze(space_id) as frozen:
            if frozen.key is not None and frozen.custodian is not None:
                with suppress(EngineError):  # tried again at the next look
                    await asyncio.to_thread(work, frozen.key)

    def _look(self, space_id: str) -> tuple[bool, float]:
        """Return True if a closed space looks sound, and the CPU seconds of the check.

        Raises StorageError, KeyFileError: the keeper of its key is unknown.
        """
        started = time.thread_time()
        entry = self._entries.get(space_id)
        path = self._state.folder.space(space_id)
        is_in_hand = entry is not None and (
            entry.opening or entry.closing or entry.last_problems or entry.door.locked()
        )
        if is_in_hand or not path.exists():
            return True, 0.0
        # A space that was never requested gets no entry: there may be ten thousand.
        custodian = entry.custodian if entry else Custodian(space_id, self._state.folder, self._state.master)
        custody = custodian.custody
        key = custodian.key(custody.key)
        try:
            is_sound = key is None or (custody.following is None and glance(path, key))
        except StorageError:
            is_sound = False
        return is_sound, time.thread_time() - started

    # Keeper of the key

    async def give_to(self, space_id: str, keeper: Keeper, follow: Follow) -> Custody:
        """Make the server or the devices the keeper of the key (`SpaceSlot.give_to`), and notify
        the devices. `follow` receives the progress.
        """
        custody = await self._entry(space_id).give_to(keeper, follow)
        self.host.announce_news(space_id)
        return custody

    async def renew(self, space_id: str, follow: Follow) -> Custody:
        """Re-encrypt a database with the server's next key (`SpaceSlot.renew`). `follow` receives
        the progress.
        """
        return await self._entry(space_id).renew(follow)

    async def close(self) -> None:
        """Finish pending writes, close all spaces and drop their keys."""
        for entry in self._entries.values():
            entry.stop_timer()
        await self._room.close()
        entries = list(self._entries.items())
        for start in range(0, len(entries), CLOSED_AT_ONCE):
            await asyncio.gather(*(self._shut(*one) for one in entries[start : start + CLOSED_AT_ONCE]))
        await asyncio.gather(*self._renewing, return_exceptions=True)
        self._entries.clear()
        if self._leases is not None:
            await self._leases.close()
        await self._standing.close()
        if self._shared.vault is not None:
            await self._shared.vault.close()

    def _entry(self, space_id: str) -> SpaceSlot:
        entry = self._entries.get(space_id)
        if entry is None:
            self._unreadable.add(space_id)
            custodian = Custodian(space_id, self._state.folder, self._state.master, new=self._keeper)
            self._unreadable.discard(space_id)
            entry = self._entries[space_id] = SpaceSlot(space_id, custodian, self, self._standing)
        return entry

    def epoch(self, space_id: str) -> int:
        """Return the number of the newest key (epoch) on a space's list of devices, or 0 without a
        list. Blocks on the disk.
        """
        roster = self.rosters.current(space_id)
        return roster.epoch if roster is not None else 0

    async def _open(self, space_id: str, entry: SpaceSlot) -> Space:
        await self._room.enter(space_id)
        try:
            async with entry.door:
                return await self._open_in_room(space_id, entry)
        except BaseException as error:
            self._room.mark_closed(space_id)
            # The lease of a locked space is kept while sessions wait, so that the device that
            # brings the key connects to the same node.
            if self._leases is not None and not (isinstance(error, LockedError) and entry.users):
                await self._leases.leave(space_id)
            if isinstance(error, FencedError):
                self.host.send_elsewhere(space_id)
            raise

    async def _open_in_room(self, space_id: str, entry: SpaceSlot) -> Space:
        held = await self._lease_of(space_id, entry)
        try:
            try:
                name, key = await asyncio.to_thread(entry.custodian.opening_key)
                space = await self._open_space(space_id, key, held)
            except WrongKeyError:
                epoch = await asyncio.to_thread(self.epoch, space_id)
                name, key = await asyncio.to_thread(entry.custodian.search, epoch)
                space = await self._open_space(space_id, key, held)
        except ConfideError as error:
            # The error is kept until the next attempt, and its frames would keep the key.
            key = b""
            error.__traceback__ = error.__context__ = None
            raise
        if entry.custodian.custody.following is not None:
            # If this cannot be recorded, both names stay recorded.
            with suppress(KeyFileError):
                await asyncio.to_thread(entry.custodian.record_change, name)
        if held is not None:
            await asyncio.to_thread(held.keep_custody, entry.custodian.custody)
            self._ahead.update(self._state.folder.spaces.glob(space_id + _AHEAD[1:]))
        if self._shared.vault is None:
            with suppress(ConfideError):
                entry.stranded_records, _ = await space.records.places()
        entry.is_unlocked.set()
        entry.last_problems = frozenset()
        self._standing.write_soon()
        if name.keeper == "caller":
            self.host.announce_news(space_id)
        return space

    async def _lease_of(self, space_id: str, entry: SpaceSlot) -> Lease | None:
        """Return the lease of the space, if it has a log; the log names the keeper of its key."""
        if self._leases is None:
            return None
        loop = asyncio.get_running_loop()

        def stale() -> None:
            # The loop may have ended before the writer's thread notices.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._renew, space_id, entry)

        held = await self._leases.take(space_id, stale)
        if (custody := held.custody) is not None:
            await asyncio.to_thread(entry.custodian.install, custody)
        return held

    def _leave_later(self, space_id: str, entry: SpaceSlot) -> None:
        """Release the lease of a closed space that has no users any more."""
        is_closed = entry.space is None and entry.closing is None and (entry.opening is None or entry.opening.done())
        if self._leases is not None and not entry.users and not entry.listeners and is_closed:
            self._run_in_background(self._leases.leave(space_id))

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task in the background; `close` waits for it."""
        task = asyncio.create_task(work)
        self._renewing.add(task)
        task.add_done_callback(self._renewing.discard)

    def _on_lost(self, space_id: str, is_elsewhere: bool) -> None:
        if is_elsewhere:
            self.host.send_elsewhere(space_id)
        if (entry := self._entries.get(space_id)) is not None:
            self._renew(space_id, entry)

    def _renew(self, space_id: str, entry: SpaceSlot) -> None:
        """Close the space, even while it is in use, so that the next operation opens it with all
        changes of its log.
        """
        task = entry.opening
        if task is None or not task.done() or entry.closing is not None or self._entries.get(space_id) is not entry:
            return  # it is being opened or closed anyway
        entry.opening = None

        async def close() -> None:
            with suppress(ConfideError):
                await self._close(space_id, task.result())
            if entry.closing is asyncio.current_task():
                entry.closing = None

        entry.closing = asyncio.create_task(close(), name="confide-renew")
        self._renewing.add(entry.closing)
        entry.closing.add_done_callback(self._renewing.discard)

    async def _open_space(self, space_id: str, key: bytes, held: Lease | None) -> Space:
        is_known = await asyncio.to_thread(self._is_known, space_id)
        path = self._state.folder.space(space_id)
        return await Space.open(path, key, self._shared, space_id=space_id, host=self, held=held, is_known=is_known)

    def roster(self, space_id: str) -> Roster | None:
        """Return the current roster of a space, the list of its devices, or None. Blocks on the
        disk.
        """
        return self.rosters.current(space_id)

    def around(self, space_id: str) -> tuple[int | None, bool | None]:
        """Return the number of credentials stored in clear (None: unknown), and True if a verified
        backup exists (None: unknown).
        """
        return self.host.around(space_id)

    def _is_known(self, space_id: str) -> bool:
        """Return True if a device used the space before this daemon started."""
        return any(
            caller.space_id == space_id and (caller.last_seen_at or math.inf) < self._began_at
            for caller in self._state.registry.callers()
        )

    def may_close(self, space_id: str) -> bool:
        """Return True if a space is open, not in use, and its key is not being changed."""
        return self._entries[space_id].may_close

    def is_at_rest(self, space_id: str) -> bool:
        """Return True if a space is open and nothing is being indexed."""
        return (space := self._entries[space_id].space) is not None and space.is_at_rest

    async def close_unused(self, space_id: str) -> None:
        """Close the space but keep its key in memory. Operations that begin meanwhile wait until it
        is opened again.
        """
        entry = self._entries[space_id]
        if not entry.may_close:
            return
        task, entry.opening = entry.opening, None
        assert task is not None
        space = task.result()
        entry.last_problems = frozenset(space.health_problems() - {"embedding"})

        async def close() -> None:
            await self._close(space_id, space)
            # Reset here and not by the waiting caller, so that later callers never find an ended
            # task.
            if entry.closing is asyncio.current_task():  # and it is not locked meanwhile
                entry.closing = None

        entry.closing = asyncio.create_task(close())
        await asyncio.shield(entry.closing)

    async def _close(self, space_id: str, space: Space) -> None:
        try:
            await space.close()
        except Exception as error:
            # A space that cannot close must not prevent the others from closing.
            log.error("space %s did not close: %s", space_id, type(error).__name__)
        finally:
            self._room.mark_closed(space_id)
            if self._leases is not None:
                entry = self._entries.get(space_id)
                if entry is not None and (entry.users or entry.listeners):
                    self._leases.keep(
                        space_id, space.lease
                    )  # else its sessions would have to move because they were idle
                else:
                    await self._leases.leave(space_id, space.lease)

    # Locking

    def _lock_later(self, space_id: str, entry: SpaceSlot) -> None:
        # Also for a space that could not be opened with the keys, as on a full disk.
        if entry.users or entry.timer is not None or not entry.custodian.is_holding:
            return

        def lock() -> None:
            entry.stop_timer()
            if not entry.users and entry.custodian.is_holding:
                entry.closing = asyncio.create_task(self._lock(space_id, entry, entry.closing))

        entry.timer = asyncio.get_running_loop().call_later(self._lock_after_s, lock)
        entry.locks_at = self._state.registry.clock() + self._lock_after_s
        self._standing.write_soon()

    async def _lock(self, space_id: str, entry: SpaceSlot, closing: asyncio.Task[None] | None) -> None:
        """Close the space and forget its keys. `closing`: the task that already closes it for lack
        of use.
        """
        try:
            if closing is not None:
                await closing
            await self._shut(space_id, entry)
            log.info("space %s is locked: it was not used for %.0f s", space_id, self._lock_after_s)
        finally:
            entry.closing = None
            self._standing.write_soon()

    async def _shut(self, space_id: str, entry: SpaceSlot) -> None:
        """Close the space, if it is open, and forget its keys."""
        entry.is_unlocked.clear()
        if entry.changing is not None:
            entry.changing.cancel()
            await asyncio.gather(entry.changing, return_exceptions=True)
        task, entry.opening = entry.opening, None
        entry.custodian.forget()
        if task is None:
            return
        try:
            space = await task
        except ConfideError:
            return  # it was never open
        await self._close(space_id, space)

    def standings(self) -> dict[str, CustodyStatus]:
        """Return the lock state of each space whose devices keep its key, by space id."""
        return {
            space_id: CustodyStatus(self.is_locked(space_id), entry.locks_at, entry.stranded_records)
            for space_id, entry in self._entries.items()
            if entry.custodian.custody.key.keeper == "caller"
        }

    @property
    def _is_without_model(self) -> bool:
        return all(model.name == NO_MODEL for model in self._shared.models)


def _state(entry: SpaceSlot) -> str:
    if entry.space is not None:
        return "damaged" if "storage" in entry.space.health_problems() else "open"
    if isinstance(entry.failure, LockedError) or entry.custodian.is_locked:
        return "locked"
    is_broken = entry.failure is not None and not isinstance(entry.failure, CrowdedError)
    return "damaged" if is_broken or "storage" in entry.last_problems else "closed"


def glance(path: Path, key: bytes) -> bool:
    """Check a closed space quickly; return False if it should be opened for repair. Raises
    StorageError if the database cannot be read.
    """
    with closing(Store.open(path, key, writer=False, now=0.0)) as store:
        if store.schema_version() < migrations()[-1][0]:
            return True  # opening upgrades it, and it is checked then
        is_settled = all(breach.healed_at for breach in store.breaches.list_breaches(limit=BREACHES))
        return is_settled and not store.marks.find(OPEN) and not store.integrity.glance()
