"""What a client has asked and not been answered yet, and the way of its lines to the daemon."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confide_crypto.errors import ConnectionLost

if TYPE_CHECKING:
    import asyncio

    from confide_proxy.link import Link


@dataclass(slots=True)
class Call:
    """A request of the client's that has no answer yet."""

    line: bytes
    method: str
    tool: str | None
    repeatable: bool
    offline: str = "fail"
    """What is done with it while the daemon cannot be reached (`Catalogue.offline`)."""
    timer: asyncio.TimerHandle | None = None
    is_sent: bool = False
    session_id: str = ""
    """Of the connection that it was sent on."""
    repeats: int = 0
    is_settled: bool = False
    is_taken: bool = False
    """This machine answers it in the daemon's place."""
    is_stream: bool = False
    """Its answer is the end of a stream of news, which may never come: nothing waits for it."""
    is_acknowledged: bool = False
    """The client knows that the stream is open."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line on its way up: of a call, or about one on the connection `session_id`."""

    data: bytes
    call: Call | None = None
    session_id: str = ""


class Outgoing:
    """Lines on their way up, in order. A queue, so that taking the client's next line (and its deadline) never waits for the network."""

    def __init__(self) -> None:
        self._lines: deque[Line] = deque()
        self._is_filled: asyncio.Event | None = None

    def put(self, line: Line) -> None:
        """Send this behind the others."""
        self._lines.append(line)
        if self._is_filled is not None:
            self._is_filled.set()

    def put_first(self, lines: list[Line]) -> None:
        """Send these before all others."""
        self._lines.extendleft(reversed(lines))
        if self._is_filled is not None:
            self._is_filled.set()

    def clear(self) -> None:
        """Send nothing of what is left."""
        self._lines.clear()

    async def run(self, link: Link) -> None:
        """Send, for as long as the task lives."""
        import asyncio

        self._is_filled = asyncio.Event()
        while True:
            while self._lines:
                line = self._lines.popleft()
                if line.call is not None and line.call.is_settled:
                    continue
                if line.call is not None:
                    line.call.session_id = link.session_id
                # Where the link breaks right here, nobody knows whether the daemon got it: who is told that it is down decides.
                with suppress(ConnectionLost):
                    await link.send_message(line.data, line.session_id)
            self._is_filled.clear()
            await self._is_filled.wait()
