"""A stream of server-sent events for open pages, which load themselves again at an event unless the
user is typing.

The daemon has no event for "anything of this space", so each open page makes a small request every
`LOOK_S`.
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
"""Seconds after which a stream notices that its session has ended."""
COMMENT_S: Final = 20.0
"""Seconds without an event after which a stream sends a comment, so that its connection stays open.
"""


async def stream(desk: PageContext) -> Response:
    """Send `changed` when the memory or the state of the link changes. Raises RefusalError if too
    many streams are open.
    """
    end = asyncio.Event()
    return EventStreamResponse(
        desk.gateway, desk.visit.identity, _events(desk, end), end=end.set, headers=rendering.HEADERS
    )


async def _events(desk: PageContext, end: asyncio.Event) -> AsyncIterator[bytes]:
    yield b"retry: 5000\n\n"
    before, quiet_s, looked_s = await _state_of(desk.gateway), 0.0, 0.0
    while desk.is_good():
        with suppress(TimeoutError):
            async with asyncio.timeout(PULSE_S):
                await end.wait()
            return
        quiet_s, looked_s = quiet_s + PULSE_S, looked_s + PULSE_S
        if looked_s < LOOK_S:
            continue
        looked_s = 0.0
        if (now := await _state_of(desk.gateway)) != before:
            before, quiet_s = now, 0.0
            yield b"event: changed\ndata: \n\n"
        elif quiet_s >= COMMENT_S:
            quiet_s = 0.0
            yield b": here\n\n"


async def _state_of(gateway: GatewayShared) -> Any:
    """Return a value that changes when the memory or the state of the link changes."""
    link = gateway.exchange.link
    if not link.is_up:
        return False
    try:
        answer = await PROJECTS.ask(link, {"project": gateway.calls.project}, timeout_s=ASK_S)
    except (ConfideError, TimeoutError):
        return None
    return [(each["name"], each["files"], each["updated"]) for each in answer["projects"]]
