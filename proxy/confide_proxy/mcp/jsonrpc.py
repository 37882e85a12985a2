"""The client's JSON-RPC: its messages, read with suspicion; its calls without an answer, and their way to the daemon.

On the path between spawn and the first answer: what takes time to import is imported where it is needed.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from confide_crypto.errors import ConfideError, ConnectionLost
from confide_memory.tools import call as call_keys
from confide_proxy.errors import ToolError
from confide_proxy.mcp.catalogue import VERSION_KEY

if TYPE_CHECKING:
    import asyncio

    from confide_proxy.link.daemon_link import Link
    from confide_proxy.offline.behind import Behind
    from confide_proxy.sealing.sealed_calls import SealedCalls

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""The channel's own limit for one message (PROTOCOL.md 6.3)."""
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
UNAVAILABLE: Final = -32000
PREPARE_DEADLINE_S = 8.0
"""Within the ten seconds that a call has."""
REPLAY_ID: Final = "confide-replay"
"""The id of what is replayed unseen, and what the ids of replayed subscriptions begin with."""
_LINE_ENDS: Final = (("\x85", "\\u0085"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029"))
"""What JSON may hold as it is, and `str.splitlines` and its like in other languages take for the end of a line: what follows in a note
would be the next message of a client that reads lines so."""


class MalformedError(Exception):
    """A line that is no message. `code`: JSON-RPC's; `identifier`: the id that could be read of it, for the client that waits under it."""

    def __init__(self, code: int, why: str, *, identifier: str | int | None = None) -> None:
        super().__init__(why)
        self.code, self.identifier = code, identifier


def parsed(line: bytes) -> tuple[dict[str, object], bytes]:
    """The message of a line, and the line without what nobody reads: of two values under one name the first would go up as it is.

    Raises MalformedError: it is no message.
    """
    if len(line) > MAX_LINE_BYTES:
        raise MalformedError(INVALID_REQUEST, f"the message is larger than {MAX_LINE_BYTES // 2**20} MiB")
    is_doubled = False
    try:
        try:
            message = json.loads(line, object_pairs_hook=_once)
        except _TwiceError:
            message, is_doubled = json.loads(line), True
    except UnicodeDecodeError:
        # Bytes of another encoding stand in a text: its client waits under the id that can be read all the same.
        why = "the line is not UTF-8; send the call again in UTF-8"
        raise MalformedError(PARSE_ERROR, why, identifier=_id_in(line)) from None
    except (ValueError, RecursionError):
        raise MalformedError(PARSE_ERROR, "the line is not JSON") from None
    if not isinstance(message, dict):
        raise MalformedError(INVALID_REQUEST, "the line is not a JSON-RPC 2.0 message")
    identifier = message.get("id")
    if not isinstance(identifier, str | int | None) or isinstance(identifier, bool) or not _is_text(identifier):
        raise MalformedError(INVALID_REQUEST, "the id is neither a string nor a number")
    if message.get("jsonrpc") != "2.0" or not isinstance(message.get("method", ""), str):
        raise MalformedError(INVALID_REQUEST, "the line is not a JSON-RPC 2.0 message", identifier=identifier)
    if b"\\ud" in line.lower() and not _is_text(message):
        # JSON can spell half of a surrogate pair; no file, no hash and no parser behind this one can hold it.
        raise MalformedError(INVALID_REQUEST, "a text of it holds half of a surrogate pair", identifier=identifier)
    return message, encoded(message) if is_doubled else line


def _id_in(line: bytes) -> str | int | None:
    """The id of a message that is not UTF-8; None where it cannot be read."""
    try:
        message = json.loads(line.decode("latin-1"))
    except (ValueError, RecursionError):
        return None
    found = message.get("id") if isinstance(message, dict) else None
    is_sure = isinstance(found, int) or (isinstance(found, str) and found.isascii())
    return found if is_sure and not isinstance(found, bool) else None


def _is_text(value: Any) -> bool:
    """Whether all of it can be written as UTF-8."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def encoded(message: dict[str, Any]) -> bytes:
    """The message on one line, without the line's end."""
    text = json.dumps(message, separators=(",", ":"), ensure_ascii=False)
    for end, escaped in _LINE_ENDS:
        text = text.replace(end, escaped)
    return text.encode("utf-8", "backslashreplace")


def key(identifier: Any) -> str:
    """An id as a key: 1 and "1" are different ids in JSON-RPC."""
    return json.dumps(identifier)


def below(root: str, params: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a tool call, with the path of a file below the project's folder as it is called there; else the same object."""
    arguments = params.get("arguments")
    path = arguments.get("path") if isinstance(arguments, dict) else None
    if not root or not isinstance(path, str) or not path.startswith(f"{root}/") or "/../" in path:
        return params
    return {**params, "arguments": {**params["arguments"], "path": path[len(root) + 1 :]}}


def with_operation(message: dict[str, Any], operation: str | None = None) -> dict[str, object]:
    """A tool call with an id of its own, and the time at which it was made (PROTOCOL.md 7.12); the client's own are not taken.

    `operation`: the id, where this machine has one already.
    """
    # Imported late: only a session that stores something needs them.
    import secrets
    from datetime import datetime

    said = datetime.now().astimezone().isoformat(timespec="seconds")
    params = message["params"]
    given = params.get("_meta")
    meta = {
        **(given if isinstance(given, dict) else {}),
        call_keys.OPERATION: operation or secrets.token_hex(16),
        call_keys.SAID: said,
    }
    return {**message, "params": {**params, "_meta": meta}}


def without_claims(message: dict[str, Any]) -> dict[str, object]:
    """A tool call without what its client says of the class of what is stored (docs/agents.md): that is the machine's to say."""
    meta = message["params"].get("_meta")
    if not isinstance(meta, dict) or call_keys.CLASS not in meta:
        return message
    kept = {name: value for name, value in meta.items() if name != call_keys.CLASS}
    return {**message, "params": {**message["params"], "_meta": kept}}


def with_claims(message: dict[str, Any], claims: Mapping[str, object]) -> dict[str, object]:
    """A tool call with what this machine says of it in `_meta`, in the place of what its client says there."""
    params = message["params"]
    given = params.get("_meta")
    meta = {**(given if isinstance(given, dict) else {}), **claims}
    return {**message, "params": {**params, "_meta": meta}}


class _TwiceError(ValueError):
    """A name stands twice in an object."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _TwiceError
    return found


@dataclass(slots=True, eq=False)
class PendingCall:
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
    """Its client has been answered, or has taken it back."""
    is_taken: bool = False
    """This machine answers it in the daemon's place."""
    is_level: bool = False
    """When it was sent, all files of this machine were known to be with the daemon."""
    is_answered: bool = False
    """The daemon has answered, and that is not passed on yet: a second answer is none."""
    is_asked_again: bool = False
    """What it found was nothing, and files may have been on their way to the daemon."""
    lacking: Behind | None = None
    """Those that still were when it was asked again."""
    is_stream: bool = False
    """Its answer is the end of a stream of news, which may never come: nothing waits for it, and no broken link ends it."""
    is_acknowledged: bool = False
    """The daemon has said that it brings the news, since it was last told of the stream."""
    is_bound: bool = False
    """Who made it reaches less than this machine, and only the daemon can keep it to that: nothing of it is done without."""

    @property
    def identifier(self) -> Any:
        return self.message["id"]

    @property
    def key(self) -> str:
        return key(self.identifier)

    @property
    def method(self) -> str:
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
    def token(self) -> Any:
        """What its progress is told under; None: nobody follows it."""
        return self.meta.get("progressToken")

    @property
    def operation(self) -> str | None:
        """The id by which it is made once."""
        operation: str | None = self.meta.get(call_keys.OPERATION)
        return operation

    @property
    def said(self) -> str | None:
        """When it was made, ISO 8601 with the time zone."""
        said: str | None = self.meta.get(call_keys.SAID)
        return said

    @property
    def class_(self) -> str | None:
        """The class of what it stores, as this machine says (docs/agents.md)."""
        said: str | None = self.meta.get(call_keys.CLASS)
        return said

    @property
    def is_modern(self) -> bool:
        """Whether it is of the 2026-07-28 era."""
        return VERSION_KEY in self.meta

    @property
    def is_structured(self) -> bool:
        """Whether its client asks for the structured form of the result beside the text."""
        return self.meta.get(call_keys.STRUCTURED) is True

    def disarm(self) -> None:
        if self.timer:
            self.timer.cancel()


@dataclass(slots=True, eq=False)
class OutgoingLine:
    """A message on its way up: of a call, or about one on the connection `session_id`. `is_ready`: it may go up as it is."""

    message: dict[str, Any]
    data: bytes = b""
    call: PendingCall | None = None
    session_id: str = ""
    is_ready: bool = False

    def __post_init__(self) -> None:
        self.data = self.data or encoded(self.message)

    @property
    def is_wanted(self) -> bool:
        """Whether nobody has answered its call meanwhile."""
        return self.call is None or not (self.call.is_settled or self.call.is_taken)


class OutgoingQueue:
    """Lines on their way up, in order. A queue, so that taking the client's next line (and its deadline) never waits for the network."""

    def __init__(self) -> None:
        self._lines: deque[OutgoingLine] = deque()
        self._is_filled: asyncio.Event | None = None

    def put(self, line: OutgoingLine) -> None:
        self._lines.append(line)
        if self._is_filled is not None:
            self._is_filled.set()

    def put_first(self, lines: list[OutgoingLine]) -> None:
        self._lines.extendleft(reversed(lines))
        if self._is_filled is not None:
            self._is_filled.set()

    def clear(self) -> None:
        self._lines.clear()

    async def run(self, link: Link, sealed: SealedCalls) -> AsyncIterator[tuple[PendingCall, Exception]]:
        """Send, for as long as the task lives: each line only once it is sealed, and none before those that came before it.

        Yields:
            the calls that do not go up, and why.
        """
        import asyncio

        from confide_crypto.transport.task_group import raise_if_cancelled

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
                try:
                    await link.send_message(line.data, line.session_id)
                except ConnectionLost:
                    raise_if_cancelled()
            self._is_filled.clear()
            await self._is_filled.wait()

    async def _prepare(self, line: OutgoingLine, link: Link, sealed: SealedCalls) -> Exception | None:
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

    async def _sealed(self, line: OutgoingLine, link: Link, sealed: SealedCalls) -> bytes:
        is_lookup, said = (line.call.is_read_only, line.call.said) if line.call else (False, None)
        message = await sealed.prepared(link, line.message, is_lookup=is_lookup, said=said)
        data = line.data if message is line.message else encoded(message)
        if len(data) > MAX_LINE_BYTES:  # a placeholder is longer than many a password
            raise ToolError(f"the message is larger than {MAX_LINE_BYTES // 2**20} MiB once it is sealed")
        return data

    def _take_out(self, line: OutgoingLine) -> None:
        with suppress(ValueError):  # all were taken out meanwhile
            self._lines.remove(line)
