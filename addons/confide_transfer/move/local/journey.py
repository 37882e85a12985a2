"""One move from its beginning to its end: the space is carried, this machine goes over, and the daemon that it left closes it.

This machine goes over by one change of one file. Before it, everything is as it was; after it, everything is at the new daemon, and the
sessions of this machine, which the old one has ended, find that when they connect again.
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
from confide_proxy.errors import MoveError
from confide_proxy.link.daemon import save_pin
from confide_proxy.link.daemon_link import RetryingLink
from confide_proxy.link.key_rotation import MachineKeys
from confide_proxy.paths import ProxyPaths
from confide_proxy.sync.ledger import carry
from confide_proxy.sync.project_names import ProjectNames
from confide_transfer.move.local import place as places
from confide_transfer.move.local.carrier import DEADLINE_S, HOLD_DEADLINE_S, Carrier, MoveLeftovers, Progress
from confide_transfer.move.local.inventory import Holdings, held
from confide_transfer.move.local.place import MoveEnd, MoveNote
from confide_transfer.move.shared.moved import MOVE_LEAVE, MOVE_STATE, MoveState


@dataclass(slots=True)
class MoveSummary:
    """What a move has come to.

    Attributes:
        left: what stayed behind.
        tasks: how many have gone along.
        aside: where an older memory of this machine's own daemon is now, if it was in the way.
        is_closed: whether the daemon that was left knows; if not, the next `confide daemon move` tells it.
    """

    holdings: Holdings
    left: MoveLeftovers
    tasks: int = 0
    aside: Path | None = None
    is_closed: bool = True


@dataclass(frozen=True, slots=True)
class Departure:
    """The space as it is where it leaves; use with `async with Departure.open(...)`.

    Attributes:
        link: to the daemon that has it.
        others: the names of its other devices, which have to join the new daemon themselves.
    """

    link: RequestChannel
    space: SpaceConnection
    roster: Roster
    keys: SpaceKeys
    others: list[str] = field(default_factory=list)

    @classmethod
    @asynccontextmanager
    async def open(cls, paths: ProxyPaths, config: ProxyConfig) -> AsyncIterator[Self]:
        """Connected, with the space's keys. Raises what `SpaceConnection.open` raises, and why there are no keys."""
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
        """What there is to be moved, and how many tasks. Raises MoveError: the daemon is too old."""
        stands = await state(self.link, "the daemon that has this memory")
        return await held(self.link), stands["tasks"] or 0


async def state(link: RequestChannel, who: str) -> MoveState:
    """How a space stands to moves: `state`, `revisions`, `records`. Raises MoveError: `who`, a daemon, is too old."""
    try:
        return await MOVE_STATE.ask(link, {}, timeout_s=DEADLINE_S)
    except RequestError as error:
        if error.code != "invalid" and not isinstance(error, UnknownRequestError):
            raise
        raise MoveError(f"{who} is too old for a move", hint="update confided on its server") from None


class Journey:
    """One move of this machine's space to `target`."""

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
        """Carry everything, compare it, and go over.

        Raises MoveError: it cannot be; then nothing has changed for this machine. What was carried so far is not carried again.
        """
        source = await asyncio.to_thread(places.present, self._paths)
        await asyncio.to_thread(places.save, self._paths.move, MoveNote(source, self._target))
        if self._target.joined is None:
            await self._make_room()
        async with self._arrival() as connection:
            target = places.as_shown(self._target, connection)
            link = RetryingLink(connection)
            carrier = Carrier(departure.link, link, departure.keys, progress)
            await carrier.begin(departure.roster, with_tasks=self._with_tasks)
            if carrier.tasks:
                await _bringing()
            await carrier.carry()
            holdings = await carrier.finish()
            note = MoveNote(source, target, is_over=True, changes=carrier.changes)
            await asyncio.to_thread(self._go_over, note, departure, carrier.space)
            moved = MoveSummary(holdings, carrier.left, aside=self._aside)
            try:
                await _close(departure.link, carrier.changes)
                if carrier.tasks:
                    moved.tasks = await _bring(departure.link, link)
                await asyncio.to_thread(places.forget, self._paths.move)
            except (ConfideError, OSError, TimeoutError):
                moved.is_closed = False
        return moved

    def _arrival(self) -> AbstractAsyncContextManager[Connection]:
        return places.connected(self._target, self._paths, self._config, MachineKeys(self._paths), self._invite)

    async def _make_room(self) -> None:
        """The daemon of this machine may have a memory that was moved away once: it is kept beside."""
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
        """`name`: of the space at its new daemon."""
        paths, keyring = self._paths, departure.space.keyring
        places.save(paths.move, note)
        roots = {paths.global_folder.absolute(): {""}}
        for decision in ProjectNames(paths.projects).all():
            roots.setdefault(Path(decision.home), {""}).add(decision.name)
        for root, names in roots.items():
            for own in names:
                carry(paths.ledgers, keyring.space, name, root, own)
        before = note.source.joined.daemon_static if note.source.joined is not None else b""
        RosterCache(paths.rosters).carried(departure.roster.space, before)
        if note.target.joined is not None:
            save_pin(paths.link, note.target.joined)
        else:
            paths.link.unlink(missing_ok=True)
        paths.left.unlink(missing_ok=True)


async def _close(link: RequestChannel, changes: int) -> None:
    await MOVE_LEAVE.ask(link, {"changes": changes}, timeout_s=HOLD_DEADLINE_S)


async def _bring(source: RequestChannel, target: RequestChannel) -> int:
    """Have what add-ons keep with the daemon follow; how many tasks. Raises RequestError, ConnectionLost, TimeoutError."""
    return sum([await bring(source, target) for bring in await _bringing()])


async def _bringing() -> list[Any]:
    """What brings it. Raises MoveError: this machine has nothing that does."""
    if not (found := await asyncio.to_thread(addons.each, "moved")):
        problem = "this memory has tasks, and this device no add-on to bring them along"
        raise MoveError(problem, hint="--without-tasks leaves them behind")
    return found


async def _give_up(target: RequestChannel) -> None:
    """Have the daemon wait for none of it. Raises as `_bring`."""
    for give_up in await asyncio.to_thread(addons.each, "given_up"):
        await give_up(target)


async def finish(paths: ProxyPaths, config: ProxyConfig, note: MoveNote, *, with_tasks: bool = True) -> bool:
    """Tell the daemon that was left, and bring its tasks, where a move was broken off just behind its end.

    Args:
        with_tasks: False gives them up, wherever they are.

    Returns whether this machine has gone over.

    Raises RequestError: `conflict` where another device has used the old daemon since; the move is over all the same.
    """
    here = await asyncio.to_thread(places.present, paths)
    if not note.is_over or not here.is_same(note.target):
        return False
    async with places.connected(note.target, paths, config, MachineKeys(paths)) as arrived:
        target = RetryingLink(arrived)
        has_tasks = (await state(target, "the daemon of this memory"))["tasks"] is not None
        if has_tasks and not with_tasks:
            await _give_up(target)
        try:
            async with places.connected(note.source, paths, config, MachineKeys(paths)) as left:
                source = RetryingLink(left)
                await _close(source, note.changes)
                if has_tasks and with_tasks:
                    await _bring(source, target)
        except RequestError as error:
            if error.code == "conflict":
                # Others go on there, and so do its tasks.
                if has_tasks:
                    await _give_up(target)
                await asyncio.to_thread(places.forget, paths.move)
            raise
    await asyncio.to_thread(places.forget, paths.move)
    return True
