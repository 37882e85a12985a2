"""The requests by which a machine seals what a space has stored in clear: stored-texts, rewrite, erase, unsealed (PROTOCOL.md 9.7).

Only for callers that may write in all projects and sources: a narrower one would leave the rest in clear and report a space as sealed
that is not. What is there is replaced by devices of the roster alone.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

from confide_crypto.errors import RequestError
from confide_daemon.access.callers import Caller
from confide_daemon.sealing.rescan import Unsealed, UnsealedCounts
from confide_daemon.server.requests.router import Operation
from confide_daemon.spaces.space import Space
from confide_daemon.store.rows import StoredText
from confide_memory.documents import SOURCES, check_text
from confide_memory.timestamps import iso
from confide_memory.wire.document_body import MAX_TEXT_BYTES
from confide_memory.wire.requests import HASH_CHARS


class RescanRequests:
    """One connection's. None of them names a project."""

    def __init__(
        self,
        space: Space,
        caller: Callable[[], Caller],
        epoch_for: Callable[[bytes], Awaitable[int | None]],
        counts: UnsealedCounts,
    ) -> None:
        """`caller` is asked at each step; `epoch_for` as for `RecordRequests`; `counts` keeps what machines have counted."""
        self._space = space
        self._caller = caller
        self._epoch_for = epoch_for
        self._counts = counts
        self.operations: dict[str, Operation] = {
            "stored-texts": self._stored_texts,
            "rewrite": self._rewrite,
            "erase": self._erase,
            "unsealed": self._unsealed,
        }

    def _require_all(self) -> None:
        grants = self._caller().grants
        grants.require_scope()
        grants.require_every_project("a rescan")
        for source in SOURCES:
            grants.require_source(source)

    async def _require_device(self) -> None:
        self._require_all()
        # What is replaced here is gone for good, unlike anything else that a caller may do.
        if await self._epoch_for(self._caller().public_key) is None:
            raise RequestError(
                "denied",
                "this machine is not among the devices of its space",
                "a device of the space approves this machine",
            )

    async def _stored_texts(self, after: Callable[[], int]) -> dict[str, Any]:
        self._require_all()
        page = await self._space.stored_texts.page(after())
        self._require_all()
        texts = page.texts
        return {
            "texts": [_told(text) for text in texts],
            "next": texts[-1].change if texts else None,
            "total": page.total,
            "isClean": page.is_clean,
        }

    async def _rewrite(self, changes: list[Any]) -> dict[str, Any]:
        read = [_change(item) for item in changes]
        await self._require_device()
        results: list[str] = []
        for change in read:
            self._require_all()
            results += await self._space.stored_texts.rewrite([change])
        return {"results": results}

    async def _erase(self) -> dict[str, Any]:
        await self._require_device()
        erased = await self._space.stored_texts.erase()
        return {"bytes": erased.bytes, "damagedCopies": erased.damaged_copies}

    async def _unsealed(self, findings: Callable[[], int] | None) -> dict[str, Any]:
        self._caller().grants.require_every_project("the count of what is not sealed")
        space_id = self._space.space_id
        if findings is not None:
            self._require_all()
            counted = Unsealed(findings(), time.time())
            await asyncio.to_thread(self._counts.keep, space_id, counted)
        found = await asyncio.to_thread(self._counts.of, space_id)
        is_due = found is None and await self._space.stored_texts.is_older_than_sealing()
        return {
            "findings": found.findings if found else None,
            "seenAt": iso(found.seen_at) if found else None,
            "isDue": is_due,
        }


def _told(text: StoredText) -> dict[str, Any]:
    return {
        "id": text.change,
        "project": text.project,
        "path": text.path,
        "revision": text.revision,
        "isNewest": text.is_newest,
        "hash": text.hash,
        "packed": base64.b64encode(text.packed).decode(),
    }


def _change(item: Any) -> tuple[int, str, str]:
    match item:
        case {"id": int(identity), "hash": str(before), "packed": str(packed)} if len(before) == HASH_CHARS:
            return identity, before, check_text(_unpacked(packed))
    raise RequestError("invalid", "a change is not {id, hash, packed}")


def _unpacked(packed: str) -> str:
    """Raises RequestError where it is none of a text, or of a larger one than any may be."""
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(base64.b64decode(packed, validate=True), MAX_TEXT_BYTES + 1)
        if not unpacking.eof or unpacking.unused_data or len(data) > MAX_TEXT_BYTES:
            raise ValueError
        return data.decode()
    except (binascii.Error, zlib.error, ValueError):
        raise RequestError("invalid", "a packed text is not the zlib of UTF-8, in base64, or too large") from None
