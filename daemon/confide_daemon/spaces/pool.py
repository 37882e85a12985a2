"""The spaces that are open: each database once, however many connections use it, and only while its key is at hand.

Whoever uses one holds it for as long as that takes (`Spaces.held`). What nobody has held for a while is closed, and opened again for the
next who comes.
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

# The name of the model that stands for none (`Model.none`).
NO_MODEL = "none"
# Looked through for one that is open; more are not kept.
BREACHES = 1000
LOCK_AFTER_S = 43_200.0
# At the end of the daemon: most of it is waiting for the disk, and hundreds may be open.
CLOSED_AT_ONCE = 8
# Of a core, for looks at spaces that are closed; each takes a millisecond or two, of ten thousand one after the other half an hour.
LOOKS_SHARE = 0.01
# After one that took long, as of a large space on a busy machine.
LONGEST_PAUSE_S = 60.0
# What a store has lost (`store.log.snapshot.AHEAD`), until somebody moves it away.
_AHEAD = "*.db.ahead*"


class SpacesHost:
    """What has the spaces: base of the daemon's, for where no daemon runs."""

    def announce_news(self, space_id: str) -> None:
        """Tell the machines of a space to look again: it is unlocked, or a key is needed."""

    def send_elsewhere(self, space_id: str) -> None:
        """Another node holds the space: whoever uses it here has to go there."""

    def around(self, _space_id: str) -> tuple[int | None, bool | None]:
        """What is known of a space outside of it: credentials in clear, and whether there is a proven backup."""
        return None, None


class Spaces(SpaceHost):
    """Opens a space when it is used, one writer a space, and closes it when nobody has used it for a while, or its key is forgotten."""

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
        """What keeps them.

        Args:
            shared: what they have in common; its vault is closed with them.
            keeper: who keeps the keys of spaces that are made from now on.
            lock_after_s: a key that its machines keep is forgotten so long after the last of them has gone.
            close_after_s: one that nobody has used for so long is closed.
            most_open: at once; beyond, the longest unused is closed for the next.
            leases: of their logs, whose copies the files are; None: the files are all there is. Closed with them.
        """
        self._began_at = time.time()
        self.disk = shared.disk or Disk(state.folder.root)
        """Asked before what can wait is written; whoever runs the daemon has it look."""
        self._shared = replace(shared, disk=self.disk)
        self._leases = leases
        self._ahead = set(state.folder.spaces.glob(_AHEAD)) if leases is not None else set()
        self._renewing: set[asyncio.Task[None]] = set()
        self._state = state
        self._keeper: Keeper = keeper
        self._lock_after_s = lock_after_s
        self._entries: dict[str, SpaceSlot] = {}
        self._room = OpenSpaceLimit(self, most_open, close_after_s)
        self._unreadable: set[str] = set()  # spaces of which nobody can tell who keeps their keys
        self._standing = StandingFile(state.folder.standing, self._standings)
        self.rosters = Rosters(state.registry)
        self.host = SpacesHost()
        sweep(state.folder.spaces)
        space_removal.finish(state)
        if leases is not None:
            leases.on_lost = self._lost
            leases.start()

    @asynccontextmanager
    async def held(self, space_id: str) -> AsyncIterator[Space]:
        """The open space with this id, which is not closed within this. Raises as `get`."""
        entry = self._entry(space_id)
        entry.holders += 1
        try:
            yield await self.get(space_id)
        finally:
            entry.holders -= 1
            self._room.used(space_id)

    async def get(self, space_id: str) -> Space:
        """The open space with this id, which may be closed as soon as nobody holds it.

        Raises LockedError where its machines keep its key, and none has brought it; StorageError where it cannot be opened;
        CrowdedError where too many others are in use.
        """
        entry = self._entry(space_id)
        if self._leases is not None:
            await self._leases.confirm()
        while entry.closing is not None:
            await asyncio.shield(entry.closing)
        task = entry.opening
        if task is None or (task.done() and task.exception() is not None):
            # A task of its own: a connection that goes away while it waits must not leave the space half open for the others.
            task = entry.opening = asyncio.create_task(self._open(space_id, entry))
            task.add_done_callback(lambda _task: self._lock_later(space_id, entry))
        return await asyncio.shield(task)

    @contextmanager
    def used(self, space_id: str) -> Iterator[None]:
        """Within this, somebody uses the space, or waits for it: a key that machines have brought is not forgotten.

        Raises StorageError, KeyFileError where nobody can tell who keeps its key.
        """
        entry = self._entry(space_id)
        entry.users += 1
        entry.stop_timer()
        self._standing.changed()
        try:
            yield
        finally:
            entry.users -= 1
            self._lock_later(space_id, entry)
            self._leave_later(space_id, entry)

    @contextmanager
    def staying(self, space_id: str) -> Iterator[None]:
        """Within this the space stays with this node, also while it is closed or locked: somebody here waits for its news."""
        entry = self._entry(space_id)
        entry.listeners += 1
        try:
            yield
        finally:
            entry.listeners -= 1
            self._leave_later(space_id, entry)

    @property
    def leases(self) -> Leases | None:
        """Of the logs of the spaces; None: there is no store."""
        return self._leases

    @property
    def chunks(self) -> ChunkSettings:
        """How documents are cut in all of them."""
        return self._shared.settings.chunks

    @asynccontextmanager
    async def freeze(self, space_id: str) -> AsyncIterator[FrozenSpace]:
        """How the space is while its files are copied.

        Within this no other file takes its place, and one that nobody has open is not opened.
        """
        is_known = space_id in self._entries
        try:
            entry = self._entry(space_id)
        except ConfideError:
            yield FrozenSpace(None)  # nobody can tell who keeps its key, so it cannot be opened either
            return
        try:
            async with entry.unchanged() as key:
                yield FrozenSpace(key, entry.custodian if entry.space is None else None)
        finally:
            # Of one that nobody uses, nothing is kept: there may be ten thousand.
            is_wanted = entry.users or entry.listeners or entry.holders
            is_used = entry.opening or entry.closing or is_wanted or entry.custodian.is_holding
            if not is_known and not is_used:
                self._entries.pop(space_id, None)

    def key(self, space_id: str, name: KeyName) -> bytes | None:
        """A key of a space's database, as it was or is; None where a machine has to bring it."""
        if name.keeper == "server":
            return self._state.master.space_key(space_id, name.number)
        entry = self._entries.get(space_id)
        return None if entry is None else entry.custodian.key(name)

    async def unlocked(self, space_id: str) -> Space:
        """The space, once a machine has brought its key. Raises StorageError as `get`."""
        entry = self._entry(space_id)
        while True:
            await entry.is_unlocked.wait()
            try:
                return await self.get(space_id)
            except LockedError:
                raise_if_cancelled()

    async def unlock(self, space_id: str, keys: Mapping[int, bytes], *, may_change: bool) -> None:
        """Takes keys that a machine of the roster brings, as far as they are needed (`needed_epochs`), and opens what they open.

        Args:
            keys: of the database, by their epochs, 32 bytes each.
            may_change: whether it may say what the database is encrypted with from now on.

        Raises WrongKeyError: they should open the database, and do not; StorageError, KeyFileError: it cannot be opened, or nothing can be
        written down.
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
                    self.host.announce_news(space_id)  # all of their keys are asked for now
                raise
            try:
                await self.get(space_id)
            except LockedError:
                return  # what was brought is not all that it takes
            except WrongKeyError:
                entry.custodian.forget()
                raise
        entry.change_key()

    # What connections ask (PROTOCOL.md 10.9): answered from memory, without waiting

    def custody(self, space_id: str) -> Keeper:
        return self._entry(space_id).custodian.custody.key.keeper

    def is_locked(self, space_id: str) -> bool:
        """Whether a machine has to bring its key before it can be used."""
        entry = self._entry(space_id)
        return isinstance(entry.failure, LockedError) or (entry.space is None and entry.custodian.is_locked)

    def needed_epochs(self, space_id: str, epoch: int) -> list[int]:
        """The epochs whose database keys a machine should bring: to open it, or to change to a new key."""
        return self._entry(space_id).custodian.missing_epochs(epoch)

    def health_problems(self) -> set[str]:
        """What does not work as it should in any of them (`Space.health_problems`); one that is locked is well."""
        is_cut_off = self._leases is not None and self._leases.failure is not None
        found = {"storage"} if self._unreadable or is_cut_off or any(map(Path.exists, self._ahead)) else set()
        for space_id, entry in self._entries.items():
            if entry.space is not None:
                found |= set() if self._is_removed(space_id, entry.space) else entry.space.health_problems()
                continue
            found |= entry.ailed
            passing = (LockedError, CrowdedError, EngineError)
            is_broken = entry.failure is not None and not isinstance(entry.failure, passing)
            if is_broken or (entry.custodian.is_lost and entry.custodian.custody.key.keeper == "server"):
                found.add("storage")
        # Whoever wants no model has none that could fail.
        return found - {"embedding"} if self._is_without_model else found

    def _is_removed(self, space_id: str, space: Space) -> bool:
        """Whether an operator has removed a space beside the daemon, which has it open still: its file is gone as it should be."""
        return not space.has_file and space_id not in self._state.registry.spaces().values()

    # What the operator is shown: answered from memory

    def opened(self) -> dict[str, Space]:
        """Those that are open, by their ids."""
        return {space_id: entry.space for space_id, entry in self._entries.items() if entry.space is not None}

    def states(self) -> dict[str, str]:
        """How each is that was ever asked for: `open`, `locked`, `closed` or `damaged`."""
        return dict.fromkeys(self._unreadable, "damaged") | {
            space_id: _state(entry) for space_id, entry in self._entries.items()
        }

    def waiting(self) -> dict[str, int]:
        """How many pieces of each open one wait for their vectors."""
        return {space_id: space.waiting for space_id, space in self.opened().items()}

    def providers(self) -> dict[str, bool]:
        """Whether each of the models can be asked now, by its provider."""
        return {model.label: model.is_up for model in self._shared.models if model.name != NO_MODEL}

    async def look_at_all(self) -> None:
        """Looks at the spaces that are closed, in turn, and opens those that something is wrong with, so that it is put right and told of.

        Each look is followed by a pause, so that all of them take no more than `LOOKS_SHARE` of a core, however many spaces there are.
        """
        for space_id in (await asyncio.to_thread(self._state.registry.spaces)).values():
            started = time.thread_time()
            try:
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

    def _look(self, space_id: str) -> tuple[bool, float]:
        """Whether a space looks sound, as far as can be told while nobody has it open, and the seconds of a processor that this took.

        Raises StorageError, KeyFileError: nobody can tell who keeps its key.
        """
        started = time.thread_time()
        entry = self._entries.get(space_id)
        path = self._state.folder.space(space_id)
        is_in_hand = entry is not None and (entry.opening or entry.closing or entry.ailed or entry.door.locked())
        if is_in_hand or not path.exists():
            return True, 0.0
        # Of one that was never asked for, nothing is kept: there may be ten thousand.
        custodian = entry.custodian if entry else Custodian(space_id, self._state.folder, self._state.master)
        custody = custodian.custody
        key = custodian.key(custody.key)
        try:
            is_sound = key is None or (custody.following is None and glance(path, key))
        except StorageError:
            is_sound = False
        return is_sound, time.thread_time() - started

    # Who keeps the key

    async def give_to(self, space_id: str, keeper: Keeper, follow: Follow) -> Custody:
        """Has the server or the machines keep the key from now on. As `SpaceSlot.give_to`; its machines are told."""
        custody = await self._entry(space_id).give_to(keeper, follow)
        self.host.announce_news(space_id)
        return custody

    async def renew(self, space_id: str, follow: Follow) -> Custody:
        """Encrypts a database whose key the server keeps under its next one. As `SpaceSlot.renew`."""
        return await self._entry(space_id).renew(follow)

    async def close(self) -> None:
        """Finish what is being written and close all."""
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
        """The newest epoch of a space's roster, 0 where there is none; waits for the disk."""
        roster = self.rosters.current(space_id)
        return roster.epoch if roster is not None else 0

    async def _open(self, space_id: str, entry: SpaceSlot) -> Space:
        await self._room.enter(space_id)
        try:
            async with entry.door:
                return await self._open_in_room(space_id, entry)
        except BaseException as error:
            self._room.left(space_id)
            # Whoever brings the key of one that is locked has to come to where the others wait.
            if self._leases is not None and not (isinstance(error, LockedError) and entry.users):
                await self._leases.leave(space_id)
            if isinstance(error, FencedError):
                self.host.send_elsewhere(space_id)
            raise

    async def _open_in_room(self, space_id: str, entry: SpaceSlot) -> Space:
        held = await self._held_of(space_id, entry)
        try:
            try:
                name, key = await asyncio.to_thread(entry.custodian.opening_key)
                space = await self._opened(space_id, key, held)
            except WrongKeyError:
                epoch = await asyncio.to_thread(self.epoch, space_id)
                name, key = await asyncio.to_thread(entry.custodian.search, epoch)
                space = await self._opened(space_id, key, held)
        except ConfideError as error:
            # It stays here until the next attempt; the frames that it came through have the key.
            key = b""
            error.__traceback__ = error.__context__ = None
            raise
        if entry.custodian.custody.following is not None:
            # Where that cannot be written down, both stay written down.
            with suppress(KeyFileError):
                await asyncio.to_thread(entry.custodian.changed, name)
        if held is not None:
            await asyncio.to_thread(held.keep_custody, entry.custodian.custody)
            self._ahead.update(self._state.folder.spaces.glob(space_id + _AHEAD[1:]))
        if self._shared.vault is None:
            with suppress(ConfideError):
                entry.stranded, _ = await space.records.places()
        entry.is_unlocked.set()
        entry.ailed = frozenset()
        self._standing.changed()
        if name.keeper == "caller":
            self.host.announce_news(space_id)
        return space

    async def _held_of(self, space_id: str, entry: SpaceSlot) -> Lease | None:
        """The lease of the space, where it has a log, which says who keeps its key."""
        if self._leases is None:
            return None
        loop = asyncio.get_running_loop()

        def stale() -> None:
            # The loop may have ended before the writer's thread meets it.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._renew, space_id, entry)

        held = await self._leases.take(space_id, stale)
        if (custody := held.custody) is not None:
            await asyncio.to_thread(entry.custodian.install, custody)
        return held

    def _leave_later(self, space_id: str, entry: SpaceSlot) -> None:
        """Lets other nodes have a space that was kept for those who have gone."""
        is_closed = entry.space is None and entry.closing is None and (entry.opening is None or entry.opening.done())
        if self._leases is not None and not entry.users and not entry.listeners and is_closed:
            self._beside(self._leases.leave(space_id))

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Something that nobody waits for, before the end."""
        task = asyncio.create_task(work)
        self._renewing.add(task)
        task.add_done_callback(self._renewing.discard)

    def _lost(self, space_id: str, is_elsewhere: bool) -> None:
        if is_elsewhere:
            self.host.send_elsewhere(space_id)
        if (entry := self._entries.get(space_id)) is not None:
            self._renew(space_id, entry)

    def _renew(self, space_id: str, entry: SpaceSlot) -> None:
        """Closes the space, also while it is in use, so that whoever comes next has it opened with all that its log has."""
        task = entry.opening
        if task is None or not task.done() or entry.closing is not None or self._entries.get(space_id) is not entry:
            return  # it is about to be opened, or closed, anyway
        entry.opening = None

        async def close() -> None:
            with suppress(ConfideError):
                await self._close(space_id, task.result())
            if entry.closing is asyncio.current_task():
                entry.closing = None

        entry.closing = asyncio.create_task(close(), name="confide-renew")
        self._renewing.add(entry.closing)
        entry.closing.add_done_callback(self._renewing.discard)

    async def _opened(self, space_id: str, key: bytes, held: Lease | None) -> Space:
        is_known = await asyncio.to_thread(self._is_known, space_id)
        path = self._state.folder.space(space_id)
        return await Space.open(path, key, self._shared, space_id=space_id, host=self, held=held, is_known=is_known)

    def roster(self, space_id: str) -> Roster | None:
        """The devices of a space now; may take a while."""
        return self.rosters.current(space_id)

    def around(self, space_id: str) -> tuple[int | None, bool | None]:
        """What is known of a space outside of it (`SpacesHost.around`)."""
        return self.host.around(space_id)

    def _is_known(self, space_id: str) -> bool:
        """Whether a machine has used the space before this daemon began."""
        return any(
            caller.space_id == space_id and (caller.last_seen_at or math.inf) < self._began_at
            for caller in self._state.registry.callers()
        )

    def may_close(self, space_id: str) -> bool:
        """Whether nobody has a space in hand and nothing is changed in it."""
        return self._entries[space_id].may_close

    def is_at_rest(self, space_id: str) -> bool:
        """Whether the index of a space is complete."""
        return (space := self._entries[space_id].space) is not None and space.is_at_rest

    async def close_unused(self, space_id: str) -> None:
        """Closes the space, whose key stays at hand; whoever wants it meanwhile waits, and has it opened again."""
        entry = self._entries[space_id]
        if not entry.may_close:
            return
        task, entry.opening = entry.opening, None
        assert task is not None
        space = task.result()
        entry.ailed = frozenset(space.health_problems() - {"embedding"})

        async def close() -> None:
            await self._close(space_id, space)
            # Here rather than by who waits for it: whoever comes when this has ended must not find it any more.
            if entry.closing is asyncio.current_task():  # and it is not locked meanwhile
                entry.closing = None

        entry.closing = asyncio.create_task(close())
        await asyncio.shield(entry.closing)

    async def _close(self, space_id: str, space: Space) -> None:
        try:
            await space.close()
        except Exception as error:
            # One space that cannot close must not keep the others from closing.
            log.error("space %s did not close: %s", space_id, type(error).__name__)
        finally:
            self._room.left(space_id)
            if self._leases is not None:
                entry = self._entries.get(space_id)
                if entry is not None and (entry.users or entry.listeners):
                    self._leases.keep(space_id, space.lease)  # its sessions would have to move, for having been idle
                else:
                    await self._leases.leave(space_id, space.lease)

    # Locking

    def _lock_later(self, space_id: str, entry: SpaceSlot) -> None:
        # Also of a space that could not be opened with them, as on a full disk.
        if entry.users or entry.timer is not None or not entry.custodian.is_holding:
            return

        def lock() -> None:
            entry.stop_timer()
            if not entry.users and entry.custodian.is_holding:
                entry.closing = asyncio.create_task(self._lock(space_id, entry, entry.closing))

        entry.timer = asyncio.get_running_loop().call_later(self._lock_after_s, lock)
        entry.locks_at = self._state.registry.clock() + self._lock_after_s
        self._standing.changed()

    async def _lock(self, space_id: str, entry: SpaceSlot, closing: asyncio.Task[None] | None) -> None:
        """`closing`: what closes it already, since nobody has used it for a while."""
        try:
            if closing is not None:
                await closing
            await self._shut(space_id, entry)
            log.info("space %s is locked: nobody has used it for %.0f s", space_id, self._lock_after_s)
        finally:
            entry.closing = None
            self._standing.changed()

    async def _shut(self, space_id: str, entry: SpaceSlot) -> None:
        """Closes the space, if it is open, and forgets its keys."""
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
            return  # it never was open
        await self._close(space_id, space)

    def _standings(self) -> dict[str, CustodyStatus]:
        return {
            space_id: CustodyStatus(self.is_locked(space_id), entry.locks_at, entry.stranded)
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
    return "damaged" if is_broken or "storage" in entry.ailed else "closed"


def glance(path: Path, key: bytes) -> bool:
    """Whether a space that nobody has open looks sound. Raises StorageError."""
    with closing(Store.open(path, key, writer=False, now=0.0)) as store:
        if store.schema_version() < migrations()[-1][0]:
            return True  # it is upgraded when it is opened, and looked at then
        is_settled = all(breach.healed_at for breach in store.breaches.listed(limit=BREACHES))
        return is_settled and not store.marks.find(OPEN) and not store.integrity.glance()
