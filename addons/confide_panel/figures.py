"""What the daemon has told of itself last. No page waits for it longer than a page may take.

For it the daemon asks this machine which files wait, who has to look at all of them: half a second at ten thousand.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from confide_http.local.app import Gateway
from confide_memory.wire.sealing import UNSEALED, Unsealed
from confide_panel.desk import ASK_S, Desk, Found

FRESH_S: Final = 3.0
"""What was told so lately is not asked for again."""
OLD_S: Final = 120.0
"""What is older is waited for a little, and marked where it has to do."""
PATIENCE_S: Final = 0.02
"""In which a memory of some hundred files answers."""


class Told(NamedTuple):
    """What was told, and when (`time.monotonic`). `status` is None where the daemon does not answer, `unsealed` where it tells nothing."""

    status: Found | None
    unsealed: Unsealed | None
    at: float

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.at


@dataclass(eq=False)
class Figures:
    """Of one gateway."""

    _told: Told | None = None
    _asking: asyncio.Task[Told] | None = None

    @classmethod
    def of(cls, gateway: Gateway) -> Figures:
        return _ALL.setdefault(gateway, cls())

    async def look(self, desk: Desk) -> tuple[Told | None, bool]:
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


_ALL: WeakKeyDictionary[Gateway, Figures] = WeakKeyDictionary()


async def _asked(desk: Desk) -> Told:
    status, unsealed = await asyncio.gather(
        desk.at_least(desk.call("memory_status")), desk.at_least(UNSEALED.ask(desk.link, {}, timeout_s=ASK_S))
    )
    return Told(status, unsealed, time.monotonic())
