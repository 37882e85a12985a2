"""The requests about sealed records: records, record, record-list (PROTOCOL.md 9.7)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from confide_crypto.errors import RequestError
from confide_crypto.sealing.errors import RecordError
from confide_crypto.sealing.record import MAX_RECORD, Record
from confide_daemon.access.callers import Caller
from confide_daemon.access.grants import SOURCES
from confide_daemon.errors import GrantError
from confide_daemon.sealing.records import unknown
from confide_daemon.server.requests.router import Operation
from confide_daemon.spaces.space import Space
from confide_memory.timestamps import iso
from confide_memory.wire.fields import decoded, encoded

MAX_RECORDS: Final = 256
"""Of one request: they are written in one transaction, and the space's other writes wait for it."""
MAX_BYTES: Final = 8 * 1024 * 1024
"""Of all of them together; one has 4 MiB at most."""


class RecordRequests:
    """One connection's requests about sealed records."""

    def __init__(
        self, space: Space, caller: Callable[[], Caller], epoch_for: Callable[[bytes], Awaitable[int | None]]
    ) -> None:
        """`caller` is asked at each step; `epoch_for` gives the newest epoch for a key that is on the space's roster, else None."""
        self._space = space
        self._caller = caller
        self._epoch_for = epoch_for
        self.operations: dict[str, Operation] = {
            "records": self._records,
            "record": self._record,
            "record-list": self._list,
        }

    async def _records(self, records: Any) -> dict[str, Any]:
        caller = self._caller()
        caller.grants.require_scope()
        found = _read(records)  # megabytes, so not before it is known that they may come
        epoch = await self._epoch_for(caller.public_key)
        if epoch is None:
            hint = "look at the list of devices again; a device of the space approves this machine"
            raise RequestError("conflict", "this machine is not among the devices of its space", hint)
        if any(record.epoch != epoch for record in found):
            hint = "look at the list of devices again, and seal anew"
            raise RequestError("conflict", f"a record is not of the newest epoch, which is {epoch}", hint)
        self._caller().grants.require_scope()
        await self._space.records.put(found)
        # Not how many are new: a device that reaches one project alone would learn by it whether a guess is a secret of another.
        return {"stored": len(found)}

    async def _record(self, id: bytes) -> dict[str, Any]:
        grants = self._caller().grants
        # Who knows the name of a secret has it from a text, or has guessed the secret: a guess must not be confirmed to one who could
        # not read that text.
        is_limited = grants.projects is not None or grants.sources is not None
        if is_limited and not await self._space.documents.has_word(id.hex(), grants.projects, grants.sources):
            raise unknown()
        record = await self._space.records.get(id)
        self._check_still(grants.projects, grants.sources)
        return {"record": encoded(record.encode())}

    def _check_still(self, projects: frozenset[str] | None, sources: frozenset[str] | None) -> None:
        """Refuse one whose grants have changed meanwhile."""
        grants = self._caller().grants
        if (grants.projects, grants.sources) != (projects, sources):
            raise GrantError("this machine's grants were just changed", hint="ask again")

    async def _list(self, after: bytes, limit: int, below: int | None) -> dict[str, Any]:
        self._require_all()
        found = await self._space.records.listed(after, limit=limit + 1, below=below)
        self._require_all()
        shown = found[:limit]
        return {
            "records": [
                {"id": row.id.hex(), "kind": row.kind, "epoch": row.epoch, "at": iso(row.stored_at)} for row in shown
            ],
            "next": shown[-1].id.hex() if len(found) > limit else None,
        }

    def _require_all(self) -> None:
        grants = self._caller().grants
        grants.require_every_project("a list of sealed secrets")
        for source in SOURCES:
            grants.require_source(source)


def _read(given: Any) -> list[Record]:
    """The records of a request, whose forms are good.

    Raises:
        RequestError: there are too many, they are too large together, or one of them is none.
    """
    if not isinstance(given, list):
        raise RequestError("invalid", "'records' must be a list")
    if len(given) > MAX_RECORDS:
        raise RequestError("too_large", f"'records' has {len(given)} entries", f"the limit is {MAX_RECORDS}")
    found, size = [], 0
    for text in given:
        data = decoded(text, "records", MAX_RECORD)
        size += len(data)
        if size > MAX_BYTES:
            raise RequestError("too_large", "the records are too large together", f"the limit is {MAX_BYTES:,} bytes")
        try:
            found.append(Record.parse(data))
        except RecordError as error:
            raise RequestError("invalid", error.message, error.hint) from error
    return found
