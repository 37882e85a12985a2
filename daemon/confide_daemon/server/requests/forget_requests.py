"""Requests about forgotten texts (PROTOCOL.md 9.11).

    forget-plan       what a record would contain
    forget-take       store a record of a device, and remove what it names
    forget-sync       compare the records of a device with the daemon's
    forget-undo       accept names or texts again
    forget-receipt    what was removed where, signed

A record applies to all projects, so its device must be on the roster and have access to all of
them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from confide_crypto.errors import RequestError
from confide_daemon.addons import HeldCopy, SessionHost
from confide_daemon.datadir.daemon_keys import Keys
from confide_daemon.spaces.space import Space
from confide_memory.documents import SOURCES
from confide_memory.errors import UnfitAnswerError
from confide_memory.forgetting import RECEIPT_LABEL as LABEL
from confide_memory.forgetting import ForgetPart, SignedRecord, canonical, unpacked_parts
from confide_memory.forms import MAX_LISTED
from confide_memory.wire import forgotten as wire

MOST_ANSWER: Final = 2 << 20
"""Bytes of records in one answer."""
OUT_OF_SCOPE: Final = (
    "copies outside of Confide: screenshots, clipboards, exports, other programs' files, repositories",
    "what a model, its vendor or an embedding provider was sent",
    "copies of disks and folders that Confide does not make: tapes, restic, borg, images",
    "overwritten blocks of a disk, which need disk encryption",
    "the names of the files, and what other notes say about it",
    "standbys, archived logs and backups of PostgreSQL, which stay encrypted",
    "orders and logs of tasks at night",
)


class ForgetServices(Protocol):
    """The methods of the add-ons' services that concern copies of a space, such as backups."""

    def copies_of(self, space_id: str, before: float) -> Sequence[HeldCopy]:
        """Return the copies of a space that were made before a time (seconds since 1970). Blocks."""

    async def drop_copies(self, space_id: str, before: float) -> list[str]:
        """Remove the space from all copies that were made before a time (seconds since 1970);
        return the names of those copies. Raises ConfideError if a copy cannot be changed.
        """

    def on_records_written(self, space_id: str) -> None:
        """Notify the services that the space's file of forgotten texts has changed."""


class ForgetRequests:
    """Answers the requests of one connection about forgotten texts."""

    def __init__(
        self,
        space: Space,
        session: SessionHost,
        keys: Callable[[], Keys],
        services: ForgetServices,
    ) -> None:
        """`keys`: returns the daemon's; `services`: those of the add-ons, which may have copies."""
        self._space = space
        self._session = session
        self._keys = keys
        self._services = services
        self.operations = dict(
            [
                wire.FORGET_PLAN.by(self._plan),
                wire.FORGET_TAKE.by(self._take),
                wire.FORGET_SYNC.by(self._sync),
                wire.FORGET_UNDO.by(self._undo),
                wire.FORGET_RECEIPT.by(self._receipt),
                wire.FORGET_BACKUPS.by(self._backups),
            ]
        )

    async def _require_device(self) -> None:
        grants = self._session.caller_now().grants
        grants.require_scope()
        grants.require_every_project("what is forgotten")
        for source in SOURCES:
            grants.require_source(source)
        if await self._session.epoch_for(self._session.caller_now().public_key) is None:
            hint = "a device of the space approves this device"
            raise RequestError("denied", "this device is not among the devices of its space", hint)

    async def _plan(self, asked: wire.ForgetPlanRequest) -> wire.ForgetPlanned:
        await self._require_device()
        parts = _parts(asked["parts"])
        if asked["project"] and parts:
            raise RequestError("invalid", "either 'project' or 'parts' says what is meant")
        key, found = await self._space.forgetting.plan(
            asked["project"] or None, asked["paths"], parts, reaches=lambda _project, _path: True
        )
        return {
            "key": key,
            "documents": [{"project": project, "path": path} for project, path in found.documents[:MAX_LISTED]],
            "total": found.total,
            "shared": [{"project": project, "path": path} for project, path in found.shared],
            "names": b"".join(found.names),
            "texts": b"".join(found.texts),
            "parts": b"".join(part.pack() for part in found.parts),
            "ofParts": found.of_parts,
            "sealed": b"".join(found.sealed),
        }

    async def _take(self, asked: wire.ForgetTakeRequest) -> wire.ForgetTaken:
        await self._require_device()
        signed = SignedRecord(asked["record"], asked["signature"])
        try:
            record, is_signed = signed.record, signed.is_signed
        except UnfitAnswerError:
            raise RequestError("invalid", "the record is not of the agreed form") from None
        if not is_signed:
            raise RequestError("invalid", "the record is not signed by the device that it names")
        if await self._space.forgetting.count() >= wire.MOST_RECORDS:
            raise RequestError("too_large", f"a space keeps at most {wire.MOST_RECORDS:,} records of forgetting")
        roster = await asyncio.to_thread(self._space.roster)
        if roster is None or record.space != roster.space.hex():
            raise RequestError("invalid", "the record is of another space")
        author = self._session.grants.alias
        lifted = wire.hashes_of(asked["lifted"])
        forgot = await self._space.forgetting.take(signed, asked["key"], author=author, lifted=lifted)
        for change in forgot.changes:
            self._session.publish_here_too(change)
        self._services.on_records_written(self._space.space_id)
        row = await self._space.forgetting.find(record.id)
        return {"documents": forgot.documents, "done": row is not None and row.done_at is not None}

    async def _sync(self, asked: wire.ForgetSyncRequest) -> wire.ForgetSynced:
        caller = self._session.caller_now()
        if await self._session.epoch_for(caller.public_key) is None or not caller.grants.reaches_all:
            return {"records": [], "complete": True, "wanted": []}
        await self._space.forgetting.note_device_done(map(bytes.fromhex, asked["done"]), caller.public_key)
        rows = await self._space.forgetting.rows()
        keys = await self._space.forgetting.keys()
        have = {*map(bytes.fromhex, asked["have"])}
        records: list[wire.ForgetItem] = []
        size = 0
        missing = [row for row in rows if row.id not in have and row.signed.record.key_id in keys]
        for row in missing:
            size += len(row.signed.data)
            if records and (size > MOST_ANSWER or len(records) >= MAX_LISTED):
                break
            records.append(
                {
                    "record": row.signed.data,
                    "signature": row.signed.signature,
                    "key": keys[row.signed.record.key_id],
                    "lifted": wire.packed_hashes(row.lifted),
                }
            )
        whole = {row.id for row in rows if row.signed.record.key_id in keys}
        wanted = sorted(each.hex() for each in have - whole) if caller.grants.may_write else []
        return {"records": records, "complete": len(records) == len(missing), "wanted": wanted}

    async def _undo(self, asked: wire.ForgetUndoRequest) -> wire.ForgetUndone:
        await self._require_device()
        if parts := _parts(asked["parts"]):
            return {"count": await self._space.forgetting.undo_parts(parts)}
        return {"count": await self._space.forgetting.undo(asked["project"], asked["paths"])}

    async def _receipt(self, asked: wire.ForgetReceiptRequest) -> wire.ForgetReceipt:
        await self._require_device()
        row = await self._space.forgetting.find(asked["id"])
        if row is None:
            raise RequestError("not_found", "there is no such record", "confide forget --list shows them")
        seen = await self._space.forgetting.devices_done(row.id)
        places = [self._in_database(row.done_at)]
        if self._space.outbox is not None:
            places += _in_store(row.done_at)
        if aside := self._space.forgetting.copies_aside:
            places.append(_place("copies set aside", str(aside), "not known", None))
        roster = await asyncio.to_thread(self._space.roster)
        for device in roster.devices.values() if roster is not None else ():
            at = seen.get(device.key.hex())
            level = "gone when it connects" if at is None else "gone"
            places.append(_place("device", device.name, level, at))
        # These may have the text too, and get no record until they are approved.
        for caller in await asyncio.to_thread(self._session.registry.callers):
            is_device = roster is not None and caller.public_key in {each.key for each in roster.devices.values()}
            if caller.space_id == self._space.space_id and not is_device:
                places.append(_place("device", caller.alias, "not known", None))
        before = row.done_at or time.time()
        for copy in await asyncio.to_thread(self._services.copies_of, self._space.space_id, before):
            places.append(_place(copy.place, copy.name, copy.level, None))
        identity = self._keys().current
        body = {
            "version": 1,
            "record": row.signed.body,
            "recordSignature": row.signed.signature.hex(),
            "daemon": identity.public_key.hex(),
            "at": int(time.time()),
            "places": places,
            "outOfScope": list(OUT_OF_SCOPE),
        }
        data = canonical(body)
        return {"receipt": data, "signature": identity.sign(LABEL, data)}

    async def _backups(self, asked: wire.ForgetReceiptRequest) -> wire.ForgetBackups:
        await self._require_device()
        row = await self._space.forgetting.find(asked["id"])
        if row is None or row.done_at is None:
            raise RequestError("conflict", "it is not forgotten here yet", "wait until confide forget has ended")
        return {"dropped": await self._services.drop_copies(self._space.space_id, row.done_at)}

    @staticmethod
    def _in_database(done_at: float | None) -> dict[str, object]:
        name = "tables, full text, vectors, free pages, write-ahead log"
        return _place("database", name, "pending" if done_at is None else "gone", done_at)


def _in_store(done_at: float | None) -> list[dict[str, object]]:
    """Return the places of a log in a shared store. Which of its deleted rows are overwritten, only its
    operator can know; they are ciphertext under the space's key.
    """
    return [
        _place("log in PostgreSQL", "entries, snapshot", "pending" if done_at is None else "gone", done_at),
        _place("deleted rows and write-ahead log of PostgreSQL", "encrypted", "not known", None),
        _place("copies on other nodes", "", "gone when it connects", None),
    ]


def _place(place: str, name: str, level: str, at: float | None) -> dict[str, object]:
    return {"place": place, "name": name, "level": level, "at": None if at is None else int(at)}


def _parts(packed: bytes) -> list[ForgetPart]:
    try:
        return unpacked_parts(packed)
    except ValueError:
        raise RequestError("invalid", "'parts' must be packed parts") from None
