"""What a client has asked and not been answered yet, and the way of its lines to the daemon."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confide_crypto.errors import ConfideError, ConnectionLost

if TYPE_CHECKING:
    import asyncio

    from confide_proxy.link import Link

PREPARE_DEADLINE_S = 8.0
"""Within the ten seconds that a call has."""


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


@dataclass(slots=True, eq=False)
class Line:
    """A line on its way up: of a call, or about one on the connection `session_id`.

    Attributes:
        is_ready: it may go up as it is.
    """

    data: bytes
    call: Call | None = None
    session_id: str = ""
    is_ready: bool = False

    @property
    def is_wanted(self) -> bool:
        """Whether nobody has answered its call meanwhile."""
        return self.call is None or not (self.call.is_settled or self.call.is_taken)


@dataclass(frozen=True, slots=True)
class Preparing:
    """What is done with a line before it goes up.

    Attributes:
        is_plain: whether it may go up as it is.
        prepared: the line as it may; raises ConfideError or TimeoutError where it may not, or not now.
        unsent: is told of a line that does not go up, and why.
    """

    is_plain: Callable[[bytes], bool]
    prepared: Callable[[Link, bytes], Awaitable[bytes]]
    unsent: Callable[[Line, Exception], None]


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

    async def run(self, link: Link, preparing: Preparing) -> None:
        """Send, for as long as the task lives: each line only once it is prepared, and none before those that came before it."""
        import asyncio

        self._is_filled = asyncio.Event()
        while True:
            while self._lines:
                line = self._lines[0]
                if line.is_wanted and not line.is_ready:
                    # It stays where it is meanwhile: the link may break, or move to a connection on which others go first.
                    await self._prepare(line, link, preparing)
                    continue
                self._lines.popleft()
                if not line.is_wanted:
                    continue
                if line.call is not None:
                    line.call.session_id = link.session_id
                # Where the link breaks right here, nobody knows whether the daemon got it: who is told that it is down decides.
                with suppress(ConnectionLost):
                    await link.send_message(line.data, line.session_id)
            self._is_filled.clear()
            await self._is_filled.wait()

    async def _prepare(self, line: Line, link: Link, preparing: Preparing) -> None:
        """Make a line ready, or take it out."""
        import asyncio

        before = link.session_id
        try:
            if not preparing.is_plain(line.data):
                async with asyncio.timeout(PREPARE_DEADLINE_S):
                    line.data = await preparing.prepared(link, line.data)
            line.is_ready = True
        except ConnectionLost:
            # Where the link itself is gone, who is told so decides about the call; a connection that was replaced takes nothing with it.
            if link.session_id in ("", before):
                self._take_out(line)
        except Exception as error:
            if not isinstance(error, ConfideError | TimeoutError):
                # A fault of ours must neither end the session nor let anything out.
                import logging  # a start has 3 ms more without it

                logging.getLogger(__name__).error("a message could not be prepared: %s", type(error).__name__)
            self._take_out(line)
            preparing.unsent(line, error)

    def _take_out(self, line: Line) -> None:
        with suppress(ValueError):  # all were taken out meanwhile
            self._lines.remove(line)
