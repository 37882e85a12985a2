"""What a client has asked and not been answered yet, and the way of its lines to the daemon."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confide_crypto.errors import ConfideError, ConnectionLost
from confide_proxy.errors import ToolError
from confide_proxy.mcp.catalogue import META_OPERATION, META_SAID, VERSION_KEY
from confide_proxy.mcp.jsonrpc import MAX_LINE_BYTES, encoded, key

if TYPE_CHECKING:
    import asyncio

    from confide_proxy.link.link import Link
    from confide_proxy.sealing.tool_calls import SealedCalls

PREPARE_DEADLINE_S = 8.0
"""Within the ten seconds that a call has."""


@dataclass(slots=True, eq=False)
class Call:
    """A request of the client's that has no answer yet, parsed once: whoever answers or seals it works on the same message."""

    message: dict[str, Any]
    line: bytes
    """The message as it goes up unless something in it is sealed."""
    tool: str | None
    is_repeatable: bool
    is_read_only: bool = False
    """Its tool only asks, as the daemon lists it."""
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

    @property
    def identifier(self) -> Any:
        """The client's own id for it."""
        return self.message["id"]

    @property
    def key(self) -> str:
        """The id as a key."""
        return key(self.identifier)

    @property
    def method(self) -> str:
        """What is asked for."""
        return str(self.message["method"])

    @property
    def params(self) -> dict[str, Any]:
        """What is asked; empty where that is no object."""
        params = self.message.get("params")
        return params if isinstance(params, dict) else {}

    @property
    def meta(self) -> dict[str, Any]:
        """What goes along with it; empty where that is no object."""
        meta = self.params.get("_meta")
        return meta if isinstance(meta, dict) else {}

    @property
    def operation(self) -> str | None:
        """The id by which it is made once."""
        operation: str | None = self.meta.get(META_OPERATION)
        return operation

    @property
    def said(self) -> str | None:
        """When it was made, ISO 8601 with the time zone."""
        said: str | None = self.meta.get(META_SAID)
        return said

    @property
    def is_modern(self) -> bool:
        """Whether it is of the 2026-07-28 era."""
        return VERSION_KEY in self.meta

    @property
    def is_wanted(self) -> bool:
        """Whether its client has neither been answered nor taken it back."""
        return not self.is_settled

    def disarm(self) -> None:
        """It has no deadline any more."""
        if self.timer:
            self.timer.cancel()


@dataclass(slots=True, eq=False)
class Line:
    """A message on its way up: of a call, or about one on the connection `session_id`.

    Attributes:
        is_ready: it may go up as it is.
    """

    message: dict[str, Any]
    data: bytes = b""
    call: Call | None = None
    session_id: str = ""
    is_ready: bool = False

    def __post_init__(self) -> None:
        self.data = self.data or encoded(self.message)

    @property
    def is_wanted(self) -> bool:
        """Whether nobody has answered its call meanwhile."""
        return self.call is None or not (self.call.is_settled or self.call.is_taken)


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

    async def run(self, link: Link, sealed: SealedCalls) -> AsyncIterator[tuple[Call, Exception]]:
        """Send, for as long as the task lives: each line only once it is sealed, and none before those that came before it.

        Yields:
            the calls that do not go up, and why.
        """
        import asyncio

        self._is_filled = asyncio.Event()
        while True:
            while self._lines:
                line = self._lines[0]
                if line.is_wanted and not line.is_ready:
                    # It stays where it is meanwhile: the link may break, or move to a connection on which others go first.
                    error = await self._prepare(line, link, sealed)
                    if error is not None and line.call is not None and line.is_wanted:
                        yield line.call, error
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

    async def _prepare(self, line: Line, link: Link, sealed: SealedCalls) -> Exception | None:
        """Make a line ready, or take it out; returns why."""
        import asyncio

        before = link.session_id
        try:
            if not sealed.is_plain(line.message, len(line.data)):
                async with asyncio.timeout(PREPARE_DEADLINE_S):
                    line.data = await self._sealed(line, link, sealed)
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
            return error
        return None

    async def _sealed(self, line: Line, link: Link, sealed: SealedCalls) -> bytes:
        is_lookup, said = (line.call.is_read_only, line.call.said) if line.call else (False, None)
        message = await sealed.prepared(link, line.message, is_lookup=is_lookup, said=said)
        data = line.data if message is line.message else encoded(message)
        if len(data) > MAX_LINE_BYTES:  # a placeholder is longer than many a password
            raise ToolError(f"the message is larger than {MAX_LINE_BYTES // 2**20} MiB once it is sealed")
        return data

    def _take_out(self, line: Line) -> None:
        with suppress(ValueError):  # all were taken out meanwhile
            self._lines.remove(line)
