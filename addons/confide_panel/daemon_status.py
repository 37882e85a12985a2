"""The daemon's status for the pages. It is cached, so that no page waits for it longer than a page
may take.

To answer, the daemon asks this device for its unsent files, which takes half a second with ten
thousand files.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from confide_http.local.gateway_app import GatewayShared
from confide_memory.wire.sealing import UNSEALED, Unsealed
from confide_panel.page_context import ASK_S, Found, PageContext

FRESH_S: Final = 3.0
"""Seconds for which an answer is not asked for again."""
OLD_S: Final = 120.0
"""Seconds after which a page waits for a newer answer for `PATIENCE_S`, and else says how old the
answer is.
"""
PATIENCE_S: Final = 0.02
"""Seconds in which a memory of some hundred files answers."""


class DaemonStatus(NamedTuple):
    """The daemon's last answers and their time (`time.monotonic`). `status` and `unsealed` are None
    if the daemon did not answer.
    """

    status: Found | None
    unsealed: Unsealed | None
    at: float

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.at


@dataclass(eq=False)
class StatusCache:
    """The cached status of the daemon, for one gateway."""

    _status: DaemonStatus | None = None
    _asking: asyncio.Task[DaemonStatus] | None = None

    @classmethod
    def of(cls, gateway: GatewayShared) -> StatusCache:
        return _ALL.setdefault(gateway, cls())

    async def look(self, desk: PageContext) -> tuple[DaemonStatus | None, bool]:
        """Return the daemon's last answer, or None if there is none, and True if a newer one is on
        its way, in which case the page should be loaded again.
        """
        if not desk.gateway.exchange.link.is_up:
            return None, False
        if self._asking is None and (self._status is None or self._status.age_s > FRESH_S):
            self._asking = asyncio.create_task(_ask(desk))
        is_old = self._status is None or self._status.age_s > OLD_S
        if self._asking is not None and is_old:
            await asyncio.wait({self._asking}, timeout=PATIENCE_S)
        if self._asking is not None and self._asking.done():
            asking, self._asking = self._asking, None
            self._status = asking.result()
        return self._status, self._asking is not None and is_old


_ALL: WeakKeyDictionary[GatewayShared, StatusCache] = WeakKeyDictionary()


async def _ask(desk: PageContext) -> DaemonStatus:
    status, unsealed = await asyncio.gather(
        desk.at_least(desk.call("memory_status")), desk.at_least(UNSEALED.ask(desk.link, {}, timeout_s=ASK_S))
    )
    return DaemonStatus(status, unsealed, time.monotonic())
