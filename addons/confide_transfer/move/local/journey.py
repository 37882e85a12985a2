"""Runs a whole move: copies the space, switches this device to the target, and closes the space at
the source.

This device switches by a change of one file. Before that, nothing has changed; after it, everything
is at the target. The source has ended the sessions of this device, which find the target when they
connect again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from confide_crypto.errors import ConfideError, RequestError
from confide_crypto.handshake.invite import Invite
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_crypto.transport.open_channel import Connection
from confide_memory.documents import RequestChannel
from confide_memory.errors import UnknownRequestError
from confide_proxy import addons
from confide_proxy.config import ProxyConfig
from confide_proxy.devices.roster_cache import RosterCache
from confide_proxy.devices.space_connection import SpaceConnection
from confide_proxy.link.daemon import save_pin
from confide_proxy.link.daemon_link import RetryingLink
from confide_proxy.link.key_rotation import MachineKeys
from confide_proxy.paths import ProxyPaths
from confide_proxy.sync.ledger import carry
from confide_proxy.sync.project_names import ProjectNames
from confide_transfer.errors import MoveError
from confide_transfer.move.local import place as places
from confide_transfer.move.local.carrier import DEADLINE_S, HOLD_DEADLINE_S, Carrier, MoveLeftovers, Progress
from confide_transfer.move.local.inventory import Holdings, read_holdings
from confide_transfer.move.local.place import MoveEnd, MoveNote
from confide_transfer.move.shared.moved import MOVE_LEAVE, MOVE_STATE, MoveState


@dataclass(slots=True)
class MoveSummary:
    """The result of a move.

    Attributes:
        leftovers: data that stayed behind.
        tasks: number of tasks that were moved.
        aside: new path of an older data folder of this device's own daemon, if it was in the way.
        is_closed: whether the source has closed the space; if not, the next `confide daemon move`
            makes it do so.
    """

    holdings: Holdings
    leftovers: MoveLeftovers
    tasks: int = 0
    aside: Path | None = None
    is_closed: bool = True


@dataclass(frozen=True, slots=True)
class Departure:
    """The space at the daemon that it leaves; use with `async with Departure.open(...)`.

    Attributes:
        link: the connection to that daemon.
        others: names of the space's other devices, whose users must join them to the target.
    """

    link: RequestChannel
    space: SpaceConnection
    roster: Roster
    keys: SpaceKeys
    others: list[str] = field(default_factory=list)

    @classmethod
    @asynccontextmanager
    async def open(cls, paths: ProxyPaths, config: ProxyConfig) -> AsyncIterator[Self]:
        """Connect to the daemon that the space leaves, and get the space's keys.

        Raise the errors of `SpaceConnection.open`, or the reason why this device has no keys.
        """
        machine = MachineKeys(paths)
        async with SpaceConnection.open(paths, config, machine=machine) as space:
            await space.keyring.refresh(space.connection)
            keyring = space.keyring
            if keyring.keys is None or keyring.roster is None:
                raise keyring.problem or MoveError("this device does not have the keys of its memory")
            own = machine.identity().public_key
            devices = keyring.roster.devices
            others = [one.name for key, one in devices.items() if key != own and not one.is_paper]
            yield cls(RetryingLink(space.connection), space, keyring.roster, keyring.keys, others)

    async def look(self) -> tuple[Holdings, int]:
        """Return the inventory of the space and its number of tasks. Raise MoveError if the daemon
        is too old.
        """
        stands = await state(self.link, "the daemon that has this memory")
        return await read_holdings(self.link), stands["tasks"] or 0


async def state(link: RequestChannel, who: str) -> MoveState:
    """Return the state of a space's move at a daemon. Raise MoveError if the daemon is too old;
    `who` names it in the message.
    """
    try:
        return await MOVE_STATE.ask(link, {}, timeout_s=DEADLINE_S)
    except RequestError as error:
        if error.code != "invalid" and not isinstance(error, UnknownRequestError):
            raise
        raise MoveError(f"{who} is too old for a move", hint="update confided on its server") from None


class Journey:
    """Moves this device's space to the daemon `target`."""

    def __init__(
        self, paths: ProxyPaths, config: ProxyConfig, target: MoveEnd, invite: Invite | None, *, with_tasks: bool = True
    ) -> None:
        self._paths = paths
        self._config = config
        self._target = target
        self._invite = invite
        self._with_tasks = with_tasks
        self._aside: Path | None = None

    async def go(self, departure: Departure, progress: Progress) -> MoveSummary:
        """Copy and compare everything, then switch this device to the target.

        Raise MoveError if that fails; nothing has changed for this device then, and the next
        attempt does not copy again what has arrived.
        """
        source = await asyncio.to_thread(places.present, self._paths)
        await asyncio.to_thread(places.save, self._paths.move, MoveNote(source, self._target))
        if self._target.known_daemon is None:
            await self._make_room()
        async with self._arrival() as connection:
            target = places.with_shown_keys(self._target, connection)
            link = RetryingLink(connection)
            carrier = Carrier(departure.link, link, departure.keys, progress)
            await carrier.begin(departure.roster, with_tasks=self._with_tasks)
            if carrier.tasks:
                await _bringing()
            await carrier.carry()
            holdings = await carrier.finish()
            note = MoveNote(source, target, is_over=True, changes=carrier.changes)
            await asyncio.to_thread(self._go_over, note, departure, carrier.space)
            moved = MoveSummary(holdings, carrier.leftovers, aside=self._aside)
            try:
                await _close(departure.link, carrier.changes)
                if carrier.tasks:
                    moved.tasks = await _bring(departure.link, link)
                await asyncio.to_thread(places.forget, self._paths.move)
            except (ConfideError, OSError, TimeoutError):
                moved.is_closed = False
        return moved

    def _arrival(self) -> AbstractAsyncContextManager[Connection]:
        return places.connect_to_daemon(self._target, self._paths, self._config, MachineKeys(self._paths), self._invite)

    async def _make_room(self) -> None:
        """Rename the data folder of this device's daemon if its space was moved away once.

        Raise MoveError if it has a space of its own with revisions.
        """
        if not self._paths.daemon_data.is_dir():
            return
        async with self._arrival() as connection:
            stands = await state(RetryingLink(connection), "the daemon of this device")
        if stands["state"] == "left":
            self._aside = await places.set_aside(self._paths)
        elif stands["state"] == "settled" and stands["revisions"]:
            hint = f"give {self._paths.daemon_data} another name, and move again"
            raise MoveError("this device has a memory of its own already, which was never moved", hint=hint)

    def _go_over(self, note: MoveNote, departure: Departure, name: str) -> None:
        """Switch this device to the target, where the space has the id `name`."""
        paths, keyring = self._paths, departure.space.keyring
        places.save(paths.move, note)
        roots = {paths.global_folder.absolute(): {""}}
        for decision in ProjectNames(paths.projects).all():
            roots.setdefault(Path(decision.home), {""}).add(decision.name)
        for root, names in roots.items():
            for own in names:
                carry(paths.ledgers, keyring.space, name, root, own)
        before = note.source.known_daemon.daemon_static if note.source.known_daemon is not None else b""
        RosterCache(paths.rosters).record_move(departure.roster.space, before)
        if note.target.known_daemon is not None:
            save_pin(paths.link, note.target.known_daemon)
        else:
            paths.link.unlink(missing_ok=True)
        paths.left.unlink(missing_ok=True)


async def _close(link: RequestChannel, changes: int) -> None:
    await MOVE_LEAVE.ask(link, {"changes": changes}, timeout_s=HOLD_DEADLINE_S)


async def _bring(source: RequestChannel, target: RequestChannel) -> int:
    """Move the data that add-ons keep with the daemon, and return the number of tasks.

    Raise RequestError, ConnectionLost or TimeoutError.
    """
    return sum([await bring(source, target) for bring in await _bringing()])


async def _bringing() -> list[Any]:
    """Return the add-ons' functions that move tasks. Raise MoveError if this device has none."""
    if not (found := await asyncio.to_thread(addons.each, "moved")):
        problem = "this memory has tasks, and this device no add-on to bring them along"
        raise MoveError(problem, hint="--without-tasks leaves them behind")
    return found


async def _give_up(target: RequestChannel) -> None:
    """Make the daemon stop waiting for the tasks. Raise RequestError, ConnectionLost or
    TimeoutError.
    """
    for give_up in await asyncio.to_thread(addons.each, "given_up"):
        await give_up(target)


async def finish(paths: ProxyPaths, config: ProxyConfig, note: MoveNote, *, with_tasks: bool = True) -> bool:
    """Finish a move that was interrupted after this device had switched: close the source and move
    the tasks. Return True if this device has switched.

    With `with_tasks` False, the tasks are given up, wherever they are.

    Raise RequestError `conflict` if another device has changed the space at the source since then;
    the move is finished in this case too.
    """
    here = await asyncio.to_thread(places.present, paths)
    if not note.is_over or not here.is_same(note.target):
        return False
    async with places.connect_to_daemon(note.target, paths, config, MachineKeys(paths)) as arrived:
        target = RetryingLink(arrived)
        has_tasks = (await state(target, "the daemon of this memory"))["tasks"] is not None
        if has_tasks and not with_tasks:
            await _give_up(target)
        try:
            async with places.connect_to_daemon(note.source, paths, config, MachineKeys(paths)) as left:
                source = RetryingLink(left)
                await _close(source, note.changes)
                if has_tasks and with_tasks:
                    await _bring(source, target)
        except RequestError as error:
            if error.code == "conflict":
                # Other devices still use the source, and its tasks stay there.
                if has_tasks:
                    await _give_up(target)
                await asyncio.to_thread(places.forget, paths.move)
            raise
    await asyncio.to_thread(places.forget, paths.move)
    return True
