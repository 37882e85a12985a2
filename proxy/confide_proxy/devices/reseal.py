"""Encryption of old sealed records again with the keys of the newest epoch, a few at a time
(PROTOCOL.md 10.3).

A removed device may get a copy of the daemon's disk later. The keys that it had should then not
open the records on it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from confide_crypto.errors import RequestError, SealingError
from confide_crypto.sealing.record import SealedRecord
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_memory.documents import RequestChannel
from confide_memory.forms import to_base64
from confide_memory.wire.sealing import RECORD, RECORDS
from confide_proxy.devices.roster_client import records

DEADLINE_S: Final = 30.0
PAGE: Final = 64
"""Records per step. Each may be a whole note and is in memory meanwhile."""
_MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
PAUSE_S: Final = 0.5
"""Pause between steps in a session, which has other work."""


class Resealing:
    """Seals a space's old records again with the newest keys.

    Each run asks the daemon for old records, which is one request if there are none. It is not
    stored that a run has finished, since a daemon that is restored from a backup has the old
    records again.
    """

    def __init__(self, keys: SpaceKeys) -> None:
        self._keys = keys

    async def run(self, link: RequestChannel, *, pause_s: float = PAUSE_S, most: int | None = None) -> int:
        """Seal all old records again, or about `most` of them, and return how many were sealed.
        Wait `pause_s` seconds between batches.

        Raises:
            RequestError: a request is refused; its code is `conflict` if a newer epoch has begun.
            ConnectionLost, TimeoutError: the link breaks, or the daemon does not answer.
        """
        done = 0
        pages = records(link, below=self._keys.epoch, page=PAGE)
        while most is None or done < most:
            try:
                page = await anext(pages, None)
            except RequestError as error:
                if error.code != "denied":
                    raise
                page = None  # only devices that may read all of the space get the list
            if page is None:
                break
            done += await self._again(link, [one["id"] for one in page])
            await asyncio.sleep(pause_s)
        return done

    async def _again(self, link: RequestChannel, ids: list[str]) -> int:
        batch: list[str] = []
        for secret_id in ids:
            answer = await RECORD.ask(link, {"id": bytes.fromhex(secret_id)}, timeout_s=DEADLINE_S)
            data = await asyncio.to_thread(self._reseal, secret_id, answer["record"])
            if data is None:
                continue
            if batch and sum(map(len, batch)) + len(data) > _MAX_BATCH_BYTES:
                await RECORDS.ask(link, {"records": batch}, timeout_s=DEADLINE_S)
                batch = []
            batch.append(data)
        if batch:
            await RECORDS.ask(link, {"records": batch}, timeout_s=DEADLINE_S)
        return len(ids)

    def _reseal(self, secret_id: str, data: bytes) -> str | None:
        """Return the record under the newest epoch; None if it is invalid and so not worth keeping."""
        try:
            record = SealedRecord.parse(data)
            if record.secret_id.hex() != secret_id or record.epoch >= self._keys.epoch:
                return None
            again = record.reseal(self._keys)
        except (ValueError, SealingError):
            return None
        return to_base64(again.encode())
