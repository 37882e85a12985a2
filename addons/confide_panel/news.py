"""What open pages are told while they are open: that something is new. They then fetch themselves anew, if their person is not writing.

The daemon has no word for "anything of this space", so each open page looks every `LOOK_S`, which is a small request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

from starlette.responses import Response

from confide_crypto.errors import ConfideError
from confide_http.local.gateway_app import EventStreamResponse, GatewayShared
from confide_memory.wire.revisions import PROJECTS
from confide_panel import rendering
from confide_panel.page_context import ASK_S, PageContext

LOOK_S: Final = 2.0
PULSE_S: Final = 0.5
"""So soon a stream ends with its visit."""
COMMENT_S: Final = 20.0
"""A stream that says nothing is told to be there so often."""


async def stream(desk: PageContext) -> Response:
    """Server-sent events: `changed` where the memory or the link is another than it was. Raises RefusalError: too many are open."""
    end = asyncio.Event()
    return EventStreamResponse(
        desk.gateway, desk.visit.identity, _events(desk, end), end=end.set, headers=rendering.HEADERS
    )


async def _events(desk: PageContext, end: asyncio.Event) -> AsyncIterator[bytes]:
    yield b"retry: 5000\n\n"
    before, quiet_s, looked_s = await _seen(desk.gateway), 0.0, 0.0
    while desk.is_good():
        with suppress(TimeoutError):
            async with asyncio.timeout(PULSE_S):
                await end.wait()
            return
        quiet_s, looked_s = quiet_s + PULSE_S, looked_s + PULSE_S
        if looked_s < LOOK_S:
            continue
        looked_s = 0.0
        if (now := await _seen(desk.gateway)) != before:
            before, quiet_s = now, 0.0
            yield b"event: changed\ndata: \n\n"
        elif quiet_s >= COMMENT_S:
            quiet_s = 0.0
            yield b": here\n\n"


async def _seen(gateway: GatewayShared) -> Any:
    """What differs where something is new."""
    link = gateway.exchange.link
    if not link.is_up:
        return False
    try:
        answer = await PROJECTS.ask(link, {"project": gateway.calls.project}, timeout_s=ASK_S)
    except (ConfideError, TimeoutError):
        return None
    return [(each["name"], each["files"], each["updated"]) for each in answer["projects"]]
