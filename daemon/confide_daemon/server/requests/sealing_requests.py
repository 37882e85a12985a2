"""Requests about sealed and unsealed contents (PROTOCOL.md 9.7).

    records, record, record-list              store, fetch and list sealed records
    is-sensitive                              check a note that the device does not see
    stored-texts, rewrite, erase, unsealed    seal what a space has stored in clear

Sealing what is stored requires write access to all projects and sources: a caller with less would
leave the rest in clear and report the space as sealed. Only devices on the roster replace stored
texts.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
import zlib
from typing import Final

from confide_crypto.errors import RecordError, RequestError
from confide_crypto.sealing.record import MAX_RECORD, SealedRecord
from confide_daemon.addons import SessionHost
from confide_daemon.errors import GrantError, NotFoundError, ToolError
from confide_daemon.sealing.records import unknown_record_error
from confide_daemon.sealing.unsealed_texts import SpaceTexts, Unsealed
from confide_daemon.spaces.space import Space
from confide_daemon.store.rows import StoredText
from confide_memory.documents import MAX_TEXT_BYTES, SOURCES, check_text, iso
from confide_memory.forms import HASH_CHARS, Carried, from_base64
from confide_memory.forms import project as project_of
from confide_memory.forms import text as text_of
from confide_memory.markdown_blocks import is_sensitive
from confide_memory.wire import sealing as wire
from confide_memory.wire.operation import Nothing

MAX_RECORDS: Final = 256
"""Limit for one request: one transaction writes them all, and the space's other writes wait for it.
"""
MAX_BYTES: Final = 8 * 1024 * 1024
"""Limit on all records of a request together; a single one has 4 MiB at most."""


class SealedRequests:
    """Answers the sealing requests of one connection. They apply to the whole space, not to a
    project.
    """

    def __init__(self, space: Space, session: SessionHost) -> None:
        self._space = space
        self._session = session
        self._counts = session.desk.unsealed
        self._texts = SpaceTexts(space.threads, space.index.indexer, space.index.searcher)
        self.operations = dict(
            [
                wire.RECORDS.by(self._records),
                wire.RECORD.by(self._record),
                wire.RECORD_LIST.by(self._list),
                wire.IS_SENSITIVE.by(self._is_sensitive),
                wire.STORED_TEXTS.by(self._list_texts, may=lambda _: self._require_rescan()),
                wire.REWRITE.by(self._rewrite),
                wire.ERASE.by(self._erase),
                wire.UNSEALED.by(self._count_unsealed, may=self._may_count),
            ]
        )

    async def _records(self, asked: wire.RecordsRequest) -> wire.Stored:
        caller = self._session.caller_now()
        caller.grants.require_scope()
        found = _records_in(asked["records"])  # megabytes, so not before it is known that they may come
        epoch = await self._session.epoch_for(caller.public_key)
        if epoch is None:
            hint = "look at the list of devices again; a device of the space approves this device"
            raise RequestError("conflict", "this device is not among the devices of its space", hint)
        if any(record.epoch != epoch for record in found):
            hint = "look at the list of devices again, and seal again"
            raise RequestError("conflict", f"a record is not of the newest epoch, which is {epoch}", hint)
        self._session.caller_now().grants.require_scope()
        await self._space.records.put(found)
        # Not the number of new ones: a device with access to one project could test guesses at
        # another project's secrets.
        return {"stored": len(found)}

    async def _record(self, asked: wire.RecordRequest) -> wire.RecordAnswer:
        id = asked["id"]
        grants = self._session.caller_now().grants
        # A caller knows a secret's id from a text, or from guessing the secret. A guess must not be
        # confirmed to a caller that cannot read such a text.
        if not (grants.reaches_all or await self._space.documents.has_word(id.hex(), grants.projects, grants.sources)):
            raise unknown_record_error()
        record = await self._space.records.get(id)
        now = self._session.caller_now().grants
        if (now.projects, now.sources) != (grants.projects, grants.sources):
            raise GrantError("this device's grants were just changed", hint="ask again")
        return {"record": record.encode()}

    async def _list(self, asked: wire.RecordListRequest) -> wire.RecordList:
        limit = asked["limit"]
        self._require_all("a list of sealed secrets")
        found = await self._space.records.list_rows(asked["after"], limit=limit + 1, below=asked["below"])
        self._require_all("a list of sealed secrets")
        shown = found[:limit]
        return {
            "records": [
                {"id": row.id.hex(), "kind": row.kind, "epoch": row.epoch, "at": iso(row.stored_at)} for row in shown
            ],
            "next": shown[-1].id.hex() if len(found) > limit else None,
        }

    async def _is_sensitive(self, asked: wire.SensitiveRequest) -> wire.Sensitive:
        """Report if a document (by path) or note (by id) is sensitive; False for one that is
        missing or not readable.
        """
        try:
            grants = self._session.caller_now().grants
            if "id" in asked:
                grants.require_source("memory")
                found = await self._space.notes.row(text_of(asked, "id"), grants.projects_among(None))
                project, path = found.project, found.path
            else:
                project, path = project_of(asked), text_of(asked, "path")
            grants.require_read(project, path)
            text = await self._space.documents.newest_text(project, path)
        except (NotFoundError, GrantError, ToolError):
            return {"sensitive": False}
        return {"sensitive": text is not None and is_sensitive(text)}

    def _require_all(self, what: str) -> None:
        grants = self._session.caller_now().grants
        grants.require_every_project(what)
        for source in SOURCES:
            grants.require_source(source)

    def _require_rescan(self) -> None:
        self._session.caller_now().grants.require_scope()
        self._require_all("a rescan")

    async def _require_device(self) -> None:
        self._require_rescan()
        # Unlike any other change by a caller, a replacement here cannot be undone.
        if await self._session.epoch_for(self._session.caller_now().public_key) is None:
            hint = "a device of the space approves this device"
            raise RequestError("denied", "this device is not among the devices of its space", hint)

    async def _list_texts(self, asked: wire.StoredTextsRequest) -> wire.StoredTextsAnswer:
        page = await self._texts.page(asked["after"])
        self._require_rescan()
        texts = page.texts
        return {
            "texts": [_wire(text) for text in texts],
            "next": texts[-1].change if texts else None,
            "total": page.total,
            "isClean": page.is_clean,
        }

    async def _rewrite(self, asked: wire.RewriteRequest) -> wire.Rewritten:
        read = [_change(item) for item in asked["changes"]]
        await self._require_device()
        results: list[str] = []
        for change in read:
            self._require_rescan()
            results.append(await self._texts.rewrite(*change))
        return {"results": results}

    async def _erase(self, _asked: Nothing) -> wire.Erased:
        await self._require_device()
        erased = await self._texts.erase()
        return {"bytes": erased.bytes, "damagedCopies": erased.damaged_copies}

    def _may_count(self, body: Carried) -> None:
        self._session.caller_now().grants.require_every_project("the count of what is not sealed")
        if body.get("findings") is not None:
            self._require_rescan()

    async def _count_unsealed(self, asked: wire.UnsealedRequest) -> wire.Unsealed:
        space_id = self._space.space_id
        if (findings := asked["findings"]) is not None:
            counted = Unsealed(findings, time.time())
            await asyncio.to_thread(self._counts.keep, space_id, counted)
        found = await asyncio.to_thread(self._counts.of, space_id)
        is_due = found is None and await self._texts.is_older_than_sealing()
        return {
            "findings": found.findings if found else None,
            "seenAt": iso(found.seen_at) if found else None,
            "isDue": is_due,
        }


def _records_in(given: object) -> list[SealedRecord]:
    """Return the parsed records of a request.

    Raises RequestError if they are too many, too large together, or one of them is malformed.
    """
    if not isinstance(given, list):
        raise RequestError("invalid", "'records' must be a list")
    if len(given) > MAX_RECORDS:
        raise RequestError("too_large", f"'records' has {len(given)} entries", f"the limit is {MAX_RECORDS}")
    found, size = [], 0
    for text in given:
        data = from_base64(text, "records", MAX_RECORD)
        size += len(data)
        if size > MAX_BYTES:
            raise RequestError("too_large", "the records are too large together", f"the limit is {MAX_BYTES:,} bytes")
        try:
            found.append(SealedRecord.parse(data))
        except RecordError as error:
            raise RequestError("invalid", error.message, error.hint) from error
    return found


def _wire(text: StoredText) -> wire.StoredTextRow:
    return {
        "id": text.change,
        "project": text.project,
        "path": text.path,
        "revision": text.revision,
        "isNewest": text.is_newest,
        "hash": text.hash,
        "packed": base64.b64encode(text.packed).decode(),
    }


def _change(item: object) -> tuple[int, str, str]:
    match item:
        case {"id": int(identity), "hash": str(before), "packed": str(packed)} if len(before) == HASH_CHARS:
            return identity, before, check_text(_unpack(packed))
    raise RequestError("invalid", "a change is not {id, hash, packed}")


def _unpack(packed: str) -> str:
    """Decompress a text. Raises RequestError if it is malformed or over the limit of a text."""
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(base64.b64decode(packed, validate=True), MAX_TEXT_BYTES + 1)
        if not unpacking.eof or unpacking.unused_data or len(data) > MAX_TEXT_BYTES:
            raise ValueError
        return data.decode()
    except (binascii.Error, zlib.error, ValueError):
        raise RequestError("invalid", "a packed text is not the zlib of UTF-8, in base64, or too large") from None
