"""A stream of news that its client leaves."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from tests.support.deadline import DEADLINE_S

from confide_http.local.app import Gateway, Identity
from confide_http.local.streamable.news import Listener
from confide_http.local.streamable.streams import listening


class Watched:
    """What a stream asks of its gateway."""

    def __init__(self) -> None:
        self.ends: set[asyncio.Event] = set()

    def end_of(self, _identity: Identity) -> asyncio.Event:
        end = asyncio.Event()
        self.ends.add(end)
        return end

    def forget(self, end: asyncio.Event) -> None:
        self.ends.discard(end)


async def test_a_client_that_leaves_leaves_nothing_that_waits() -> None:
    """What still waited for news was destroyed unfinished when the gateway ended, which says so on standard error."""
    gateway, before = Watched(), asyncio.all_tasks()
    events = listening(cast("Gateway", gateway), cast("Any", None), Listener(()))

    async def read() -> None:
        async for _ in events:
            pass

    reading = asyncio.create_task(read())
    async with asyncio.timeout(DEADLINE_S):
        while len(asyncio.all_tasks() - before) < 3:  # noqa: ASYNC110 - it reads, and waits for news and for the end
            await asyncio.sleep(0.01)
    reading.cancel()
    await asyncio.wait([reading])
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    assert not gateway.ends
