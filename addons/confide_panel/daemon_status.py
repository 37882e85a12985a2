"""What the daemon has told of itself last. No page waits for it longer than a page may take.

For it the daemon asks this machine which files wait, who has to look at all of them: half a second at ten thousand.
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
"""What was told so lately is not asked for again."""
OLD_S: Final = 120.0
"""What is older is waited for a little, and marked where it has to do."""
PATIENCE_S: Final = 0.02
"""In which a memory of some hundred files answers."""


class DaemonStatus(NamedTuple):
    """What was told, and when (`time.monotonic`). `status` is None where the daemon does not answer, `unsealed` where it tells nothing."""

    status: Found | None
    unsealed: Unsealed | None
    at: float

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.at


@dataclass(eq=False)
class StatusCache:
    """Of one gateway."""

    _told: DaemonStatus | None = None
    _asking: asyncio.Task[DaemonStatus] | None = None

    @classmethod
    def of(cls, gateway: GatewayShared) -> StatusCache:
        return _ALL.setdefault(gateway, cls())

    async def look(self, desk: PageContext) -> tuple[DaemonStatus | None, bool]:
        """What is known, None for nothing yet; and whether newer figures are on their way, for which a page is to be looked at again."""
        if not desk.gateway.exchange.link.is_up:
            return None, False
        if self._asking is None and (self._told is None or self._told.age_s > FRESH_S):
            self._asking = asyncio.create_task(_asked(desk))
        is_old = self._told is None or self._told.age_s > OLD_S
        if self._asking is not None and is_old:
            await asyncio.wait({self._asking}, timeout=PATIENCE_S)
        if self._asking is not None and self._asking.done():
            asking, self._asking = self._asking, None
            self._told = asking.result()
        return self._told, self._asking is not None and is_old


_ALL: WeakKeyDictionary[GatewayShared, StatusCache] = WeakKeyDictionary()


async def _asked(desk: PageContext) -> DaemonStatus:
    status, unsealed = await asyncio.gather(
        desk.at_least(desk.call("memory_status")), desk.at_least(UNSEALED.ask(desk.link, {}, timeout_s=ASK_S))
    )
    return DaemonStatus(status, unsealed, time.monotonic())
