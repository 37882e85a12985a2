"""Asking again where the daemon said that it is busy (PROTOCOL.md 8.2): a long sync goes on more slowly, it does not fail."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from confide_crypto.errors import RequestError
from confide_crypto.texts import Asks

PAUSES_S = (1.0, 2.0, 4.0, 8.0, 15.0)
"""Half a minute together; a daemon that is busy for longer than that has another trouble than us."""


class Patient:
    """A link whose requests wait and try again on `busy`, a bounded number of times. All that a replica asks is idempotent."""

    def __init__(self, link: Asks, *, pauses_s: tuple[float, ...] = PAUSES_S) -> None:
        self._link = link
        self._pauses_s = pauses_s

    async def request(self, op: str, body: dict[str, Any], *, timeout_s: float, bulk: bool = False) -> dict[str, Any]:
        """As `Connection.request`; `timeout_s` is for each try."""
        return await self._insist(lambda: self._link.request(op, body, timeout_s=timeout_s, bulk=bulk))

    async def upload(self, op: str, body: dict[str, Any], data: bytes, *, timeout_s: float) -> dict[str, Any]:
        """As `Connection.upload`; `timeout_s` is for each try."""
        return await self._insist(lambda: self._link.upload(op, body, data, timeout_s=timeout_s))

    async def _insist(self, ask: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        for pause_s in self._pauses_s:
            try:
                return await ask()
            except RequestError as error:
                if error.code != "busy":
                    raise
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - so that many files do not come back together
        return await ask()
