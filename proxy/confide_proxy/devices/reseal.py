"""Records of older epochs are sealed again under the newest one, a few at a time (PROTOCOL.md 10.3).

After a device was removed, it may still hold a copy of the daemon's disk some day: what lies there should not open with what it took along.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from typing import TYPE_CHECKING, Any, Final

from confide_crypto.errors import RequestError, SealingError
from confide_crypto.sealing.record import Record
from confide_memory.requests import encoded
from confide_proxy.errors import UnfitAnswerError

if TYPE_CHECKING:
    from confide_crypto.sealing.space_keys import SpaceKeys
    from confide_memory.documents import Asks

DEADLINE_S: Final = 30.0
PAGE: Final = 64
"""Records in one step: each may be a whole note, and is in memory meanwhile."""
_MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
PAUSE_S: Final = 0.5
"""Between steps of a session, which has other things to do."""


class Resealing:
    """That of one space.

    The daemon is asked each time which records are old, which is one answer where none is. That all was done once is not remembered: a
    daemon whose data folder was put back has the old records again.
    """

    def __init__(self, keys: SpaceKeys) -> None:
        self._keys = keys

    async def run(self, link: Asks, *, pause_s: float = PAUSE_S, most: int | None = None) -> int:
        """Seal old records again, all of them or about `most`; how many were.

        Raises:
            RequestError: `conflict` where a newer epoch has begun.
            ConnectionLost, TimeoutError: from the link.
        """
        done, after = 0, ""
        while most is None or done < most:
            body = {"after": after, "limit": PAGE, "below": self._keys.epoch}
            try:
                page = await link.request("record-list", body, timeout_s=DEADLINE_S)
            except RequestError as error:
                if error.code != "denied":
                    raise
                break  # it is for machines that may see all of the space
            try:
                ids = [str(record["id"]) for record in page["records"]]
                following = page["next"]
            except (KeyError, TypeError) as error:
                raise UnfitAnswerError from error
            done += await self._again(link, ids)
            if not isinstance(following, str) or following <= after:
                break
            after = following
            await asyncio.sleep(pause_s)
        return done

    async def _again(self, link: Asks, ids: list[str]) -> int:
        batch: list[str] = []
        for secret_id in ids:
            answer = await link.request("record", {"id": secret_id}, timeout_s=DEADLINE_S)
            data = await asyncio.to_thread(self._sealed, secret_id, answer)
            if data is None:
                continue
            if batch and sum(map(len, batch)) + len(data) > _MAX_BATCH_BYTES:
                await link.request("records", {"records": batch}, timeout_s=DEADLINE_S)
                batch = []
            batch.append(data)
        if batch:
            await link.request("records", {"records": batch}, timeout_s=DEADLINE_S)
        return len(ids)

    def _sealed(self, secret_id: str, answer: dict[str, Any]) -> str | None:
        """The record under the newest epoch; None where it is not what it should be, and so nothing to keep alive."""
        try:
            record = Record.parse(b64decode(answer["record"], validate=True))
            if record.secret_id.hex() != secret_id or record.epoch >= self._keys.epoch:
                return None
            again = record.reseal(self._keys)
        except (KeyError, TypeError, ValueError, SealingError):
            return None
        return encoded(again.encode())
