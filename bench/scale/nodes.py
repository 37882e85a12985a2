"""What a daemon does with the engine for the spaces that it was given, and nothing else: leases, entries, snapshots."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from confide_cluster.daemon.log import log_snapshot
from confide_cluster.daemon.log.log_sealing import GENESIS, LogPosition, LogSealing, tag_of
from confide_cluster.daemon.log.replication_position import Shipped
from confide_cluster.daemon.spaces.leases import SpaceLease, SpaceLeases

SCHEMA = 1
KEY = bytes(32)


@dataclass
class Open:
    """A space that a node has the lease of."""

    lease: SpaceLease
    number: int
    tag: bytes


class Node:
    """What a daemon does with the engine, for the spaces that it was given."""

    def __init__(self, leases: SpaceLeases, ids: list[str], most: int, tags: dict[str, tuple[int, bytes]]) -> None:
        self.leases = leases
        self.ids = ids
        self._most = most
        self._tags = tags
        self.open: OrderedDict[str, Open] = OrderedDict()
        self._sealings: dict[str, LogSealing] = {}
        self.busy: set[str] = set()
        self.is_stale = False

    async def take(self, space_id: str) -> Open:
        """As a space is opened whose copy is there: the lease, what was interrupted, whether it is the copy's log, and what it lacks."""
        lease = await self.leases.take(space_id, self._stale)
        number, tag = self._tags.get(space_id, (0, GENESIS))
        await asyncio.to_thread(lease.log.sweep, lease.standing)
        assert await asyncio.to_thread(lease.log.has, number, tag, lease.standing)
        assert not await asyncio.to_thread(lambda: list(lease.log.entries(number)))
        found = self.open[space_id] = Open(lease, number, tag)
        return found

    async def write(self, space_id: str, patchset: bytes) -> None:
        """One entry behind the last one."""
        held = self.open[space_id]
        sealing = self._sealings.setdefault(space_id, LogSealing(space_id, KEY))
        lease = held.lease.standing.lease
        body = sealing.seal(LogPosition(held.number + 1, lease, SCHEMA, held.tag), patchset)
        assert await asyncio.to_thread(held.lease.log.append, held.number + 1, lease, SCHEMA, body), "fenced"
        held.number, held.tag = held.number + 1, tag_of(body)
        self._tags[space_id] = held.number, held.tag

    async def leave(self, space_id: str) -> None:
        del self.open[space_id]
        self._sealings.pop(space_id, None)
        await self.leases.leave(space_id)

    async def make_room(self) -> None:
        """Close the longest unused, as `spaces.open_limit` does."""
        for space_id in list(self.open):
            if len(self.open) < self._most:
                return
            if space_id not in self.busy and space_id in self.open:
                await self.leave(space_id)

    def _stale(self) -> None:
        self.is_stale = True


def bring(held: Open, sealing: LogSealing, file: Path) -> None:
    """As `Outbox.take_snapshot`, with a file that is there already."""
    found = Shipped(held.number, held.tag)
    number = log_snapshot.upload(held.lease.log.bring_part, sealing, file, found)
    lease = held.lease.standing.lease
    held.lease.log.settle(number, lease, base=held.number, tag=held.tag, schema=SCHEMA, custody=None)
