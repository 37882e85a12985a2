"""Copies a space from one daemon to another until both hold the same.

The devices, the keys and the names of the secrets of the space stay the same. So no text changes,
each device can still open the secrets that it could open, and the two ends can be compared revision
by revision. The device opens each secret on the way; a secret that does not open is reported, and
stays behind. The source is only read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from confide_crypto.errors import RequestError, SealingError
from confide_crypto.sealing.record import SealedRecord
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_memory.documents import RequestChannel
from confide_memory.errors import UnknownRequestError
from confide_memory.forms import to_base64
from confide_memory.wire.sealing import MOVE_ROSTER, RECORD, RECORDS, MoveRosterRequest
from confide_proxy.devices import roster_client
from confide_proxy.sealing.context import batches
from confide_transfer.errors import MoveError
from confide_transfer.move.local import inventory
from confide_transfer.move.local.inventory import Holdings, Revision, read_holdings
from confide_transfer.move.shared.moved import (
    MAX_MOVED,
    MOVE_BEGIN,
    MOVE_END,
    MOVE_HOLD,
    MOVE_IN,
    MOVE_STATE,
    Dropped,
    MovedDocument,
    MovedRevision,
    MoveEndRequest,
    MoveIn,
    is_whole,
)

DEADLINE_S: Final = 60.0
TAKE_DEADLINE_S: Final = 300.0
"""For one load: the daemon cuts its texts into chunks before it answers."""
HOLD_DEADLINE_S: Final = 120.0
"""The daemon first ends the other sessions of the space."""
CHECK_DEADLINE_S: Final = 1800.0
"""The daemon reads every text that it received."""
MAX_LOAD_BYTES: Final = 4 * 1024 * 1024
MOST_RECORDS: Final = 128
MOST_RECORD_BYTES: Final = 4 * 1024 * 1024
_AT_ONCE: Final = 16
_ROUNDS: Final = 5
_Key = TypeVar("_Key")
_Thing = TypeVar("_Thing")
_EMPTY: Final[MoveIn] = {"revisions": [], "dropped": [], "documents": [], "sessions": [], "links": []}
Progress = Callable[[float, float | None, str], None]


@dataclass(slots=True)
class MoveLeftovers:
    """Data that could not be moved.

    Attributes:
        unreadable: revisions whose text is damaged at the source.
        unopened_records: ids of secrets that this device cannot open, in hex.
    """

    unreadable: set[Revision] = field(default_factory=set)
    unopened_records: set[str] = field(default_factory=set)


class Carrier:
    """Copies one space from its old daemon to the new one. The methods raise RequestError,
    ConnectionLost or TimeoutError if a daemon refuses or cannot be reached, and UnfitAnswerError if
    its answer is invalid.
    """

    def __init__(self, source: RequestChannel, target: RequestChannel, keys: SpaceKeys, progress: Progress) -> None:
        """Prepare a move; `keys` belong to the space, and `progress` gets done, total and a label."""
        self._source = source
        self._target = target
        self._keys = keys
        self._progress = progress
        self.leftovers = MoveLeftovers()
        self.changes = 0
        """Number of changes of the space when the source held it; the source refuses to close after
        more.
        """
        self.space = ""
        """Id of the space at the target."""
        self.tasks = 0
        """Number of tasks, which follow after the source has closed the space."""

    async def begin(self, roster: Roster, *, with_tasks: bool = True) -> None:
        """Make the target receive the space. Its devices are sent first, since they may have to
        open its database.

        The target refuses all other requests until the move is complete.

        Args:
            with_tasks: True if the tasks of the space follow.

        Raise MoveError if the target is too old, and RequestError `conflict` if it has memory
        already.
        """
        body: MoveRosterRequest = {"entries": [entry.encode() for entry in roster.entries]}
        try:
            await MOVE_ROSTER.ask(self._target, body, timeout_s=DEADLINE_S)
        except RequestError as error:
            if error.code not in ("invalid", "locked") and not isinstance(error, UnknownRequestError):
                raise
            problem = "the daemon that this memory is to be moved to is too old for that"
            raise MoveError(problem, hint="update confided on its server") from None
        shown = await roster_client.roster(self._target, len(roster.entries))
        self.space = shown.space
        wanted = {epoch: self._keys.database_key(epoch) for epoch in shown.needs if epoch <= self._keys.epoch}
        if wanted and await roster_client.unlock(self._target, wanted):
            raise MoveError(
                "the other daemon does not open the new space", hint="its operator may look: confided doctor"
            )
        if with_tasks:
            await self._count_tasks()
        await MOVE_BEGIN.ask(self._target, {}, timeout_s=DEADLINE_S)

    async def _count_tasks(self) -> None:
        here, there = [await MOVE_STATE.ask(link, {}, timeout_s=DEADLINE_S) for link in (self._source, self._target)]
        if here["tasks"] and there["tasks"] is None:
            problem = "the daemon that this memory is to be moved to is too old to take its tasks"
            raise MoveError(problem, hint="update confided on its server, or leave them: --without-tasks")
        self.tasks = here["tasks"] or 0

    async def carry(self) -> Holdings:
        """Copy the data that the target lacks while the space stays in use. Return the source's
        inventory.
        """
        here = await read_holdings(self._source)
        await self._bring(here, await read_holdings(self._target))
        return here

    async def finish(self) -> Holdings:
        """Reserve the space for the move, copy the changes made meanwhile, and let the target
        compare every revision.

        The target serves the space from then on. Raise MoveError if both ends still differ after
        five rounds, or a text or secret is damaged.
        """
        self.changes = (await MOVE_HOLD.ask(self._source, {}, timeout_s=HOLD_DEADLINE_S))["changes"]
        for _ in range(_ROUNDS):
            here, there = await read_holdings(self._source), await read_holdings(self._target)
            if self._is_same(here, there):
                break
            await self._bring(here, there)
        else:
            raise MoveError("the other daemon does not keep what it is brought", hint="nothing was changed here")
        await self._check_secrets(here)
        self._progress(0, None, "comparing every revision")
        told: MoveEndRequest = {
            "revisions": len(there.revisions),
            "records": len(there.secrets),
            "tasks": self.tasks > 0,
        }
        answer = await MOVE_END.ask(self._target, told, timeout_s=CHECK_DEADLINE_S)
        if answer["damaged"]:
            problem = f"{answer['damaged']:,} revisions did not arrive as they were"
            raise MoveError(problem, hint="nothing was changed here; is the disk of the other daemon sound?")
        return here

    def _is_same(self, here: Holdings, there: Holdings) -> bool:
        wanted = here.revisions.keys() - self.leftovers.unreadable
        is_sealed = all(
            there.secrets.get(one) == self._keys.epoch for one in here.secrets.keys() - self.leftovers.unopened_records
        )
        return (
            wanted == there.revisions.keys()
            and all(there.has(here, key) for key in wanted)
            and is_sealed
            and not there.secrets.keys() - here.secrets.keys()
            and _documents_to_compare(here) == _documents_to_compare(there)
            and here.sessions == there.sessions
            and here.links == there.links
        )

    async def _bring(self, here: Holdings, there: Holdings) -> None:
        # Secrets go first: texts name them.
        await self._bring_secrets(here, there)
        await self._bring_revisions(here, there)
        for gone in _parts(sorted(there.revisions.keys() - here.revisions.keys())):
            dropped: list[Dropped] = [{"project": one[0], "path": one[1], "revision": one[2]} for one in gone]
            await self._load({**_EMPTY, "dropped": dropped})
        for documents in _parts(_missing(_documents_to_compare(here), _documents_to_compare(there))):
            await self._load({**_EMPTY, "documents": documents})
        for sessions in _parts(_missing(here.sessions, there.sessions)):
            await self._load({**_EMPTY, "sessions": sessions})
        for links in _parts(_missing(here.links, there.links)):
            await self._load({**_EMPTY, "links": links})

    async def _bring_revisions(self, here: Holdings, there: Holdings) -> None:
        missing = [one for one, key in sorted(here.order.items()) if not there.has(here, key)]
        wanted, done = set(missing), 0
        at = 0
        while at < len(missing):
            # Skips pages that the target has already.
            async for page in inventory.revisions(self._source, missing[at] - 1, texts=True):
                bringing = [one for one in page if one.id in wanted]
                good = await asyncio.to_thread(self._readable, bringing)
                for batch in batches(
                    good, lambda one: len(one.packed or b""), most=MAX_MOVED, most_size=MAX_LOAD_BYTES
                ):
                    await self._load({**_EMPTY, "revisions": batch})
                done += len(bringing)
                self._progress(done, len(missing), "revisions")
                while at < len(missing) and missing[at] <= page[-1].id:
                    at += 1
                break
            else:
                return  # the missing revisions were deleted meanwhile; compare again

    def _readable(self, page: Sequence[MovedRevision]) -> list[MovedRevision]:
        damaged = [one for one in page if one.hash and not is_whole(one)]
        self.leftovers.unreadable |= {(one.project, one.path, one.revision) for one in damaged}
        return [one for one in page if one not in damaged]

    async def _load(self, load: MoveIn) -> None:
        await MOVE_IN.ask(self._target, load, timeout_s=TAKE_DEADLINE_S, bulk=True)

    async def _bring_secrets(self, here: Holdings, there: Holdings) -> None:
        missing = sorted(one for one in here.secrets if there.secrets.get(one) != self._keys.epoch)
        for at in range(0, len(missing), MOST_RECORDS):
            self._progress(at, len(missing), "sealed secrets")
            ids = missing[at : at + MOST_RECORDS]
            found = [one for one in await self._records(self._source, ids) if one is not None]
            for batch in batches(found, len, most=MOST_RECORDS, most_size=MOST_RECORD_BYTES):
                await RECORDS.ask(self._target, {"records": [to_base64(one) for one in batch]}, timeout_s=DEADLINE_S)

    async def _records(self, link: RequestChannel, ids: Sequence[str]) -> list[bytes | None]:
        found: list[bytes | None] = []
        for at in range(0, len(ids), _AT_ONCE):
            found += await asyncio.gather(*(self._record(link, one) for one in ids[at : at + _AT_ONCE]))
        return found

    async def _record(self, link: RequestChannel, secret_id: str) -> bytes | None:
        """Return a sealed record under the newest epoch, once it opened, or None if it is missing
        or does not open.
        """
        try:
            answer = await RECORD.ask(link, {"id": bytes.fromhex(secret_id)}, timeout_s=DEADLINE_S)
        except RequestError as error:
            if error.code != "not_found":
                raise
            return None
        again = await asyncio.to_thread(self._reseal, secret_id, answer["record"])
        if again is None:
            self.leftovers.unopened_records.add(secret_id)
        return again

    def _reseal(self, secret_id: str, data: bytes) -> bytes | None:
        try:
            record = SealedRecord.parse(data)
            if record.secret_id.hex() != secret_id:
                return None
            record.open(self._keys)
            return record.reseal(self._keys).encode()
        except (ValueError, SealingError):
            return None

    async def _check_secrets(self, here: Holdings) -> None:
        """Open every secret that the target stores. Raise MoveError if one does not open."""
        ids = sorted(here.secrets.keys() - self.leftovers.unopened_records)
        for at in range(0, len(ids), MOST_RECORDS):
            self._progress(at, len(ids), "opening every secret there")
            if None in await self._records(self._target, ids[at : at + MOST_RECORDS]):
                raise MoveError("a sealed secret did not arrive as it was", hint="nothing was changed here; try again")


def _documents_to_compare(one: Holdings) -> dict[tuple[str, str], MovedDocument]:
    """Return the data of documents to compare: the revisions already say the number, author and
    time of documents that have some.
    """
    return {
        key: known if known.bare else known._replace(revision=0, author="", time=0)
        for key, known in one.documents.items()
    }


def _missing(here: Mapping[_Key, _Thing], there: Mapping[_Key, _Thing]) -> list[_Thing]:
    return [one for key, one in here.items() if there.get(key) != one]


def _parts(things: Sequence[_Thing]) -> Iterator[list[_Thing]]:
    """Yield slices of as many items as one request may have."""
    for at in range(0, len(things), MAX_MOVED):
        yield list(things[at : at + MAX_MOVED])
