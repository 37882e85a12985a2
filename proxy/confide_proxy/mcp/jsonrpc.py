"""The client's JSON-RPC messages: their parsing and validation, calls that wait for a response, and
the queue of messages to the daemon.

The client's first answer waits for this module to load, so slow imports happen only where they are
needed.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
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
"""Seconds to seal a message, within the ten seconds of a call."""
REPLAY_ID: Final = "confide-replay"
"""Id of a replayed `initialize`, which the client does not see, and prefix of the ids of replayed
subscriptions.
"""
_ANSWERS: Final = ("inputResponses", "requestState")
_LINE_ENDS: Final = (("\x85", "\\u0085"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029"))
"""Characters that JSON allows unescaped, but `str.splitlines` and its like in other languages take
for a line end: a client that reads lines that way would take the rest of a note for the next
message.
"""


class MalformedError(Exception):
    """A line that is not a valid JSON-RPC message.

    Attributes:
        code: the JSON-RPC error code for the response.
        identifier: the id of the message, for the response; None if it could not be read.
    """

    def __init__(self, code: int, why: str, *, identifier: str | int | None = None) -> None:
        super().__init__(why)
        self.code, self.identifier = code, identifier


def parse_line(line: bytes) -> tuple[dict[str, object], bytes]:
    """Parse a line from the client. Return the message, and the line to send to the daemon. That is
    encoded again if an object contains a name twice, since the daemon could use the value that is
    ignored here.

    Raises MalformedError if the line is not a valid message.
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
        # A string contains bytes of another encoding: respond to the client under the id if it can
        # be read.
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
        # JSON can express half of a surrogate pair, but files, hashes and other parsers cannot
        # represent it.
        raise MalformedError(INVALID_REQUEST, "a text of it holds half of a surrogate pair", identifier=identifier)
    return message, encode_message(message) if is_doubled else line


def _id_in(line: bytes) -> str | int | None:
    """Return the id of a message that is not UTF-8, or None if it cannot be read."""
    try:
        message = json.loads(line.decode("latin-1"))
    except (ValueError, RecursionError):
        return None
    found = message.get("id") if isinstance(message, dict) else None
    is_sure = isinstance(found, int) or (isinstance(found, str) and found.isascii())
    return found if is_sure and not isinstance(found, bool) else None


def _is_text(value: Any) -> bool:
    """Return True if all strings in `value` can be encoded as UTF-8."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def encode_message(message: dict[str, Any]) -> bytes:
    """Encode a message on one line, without the line end."""
    text = json.dumps(message, separators=(",", ":"), ensure_ascii=False)
    for end, escaped in _LINE_ENDS:
        text = text.replace(end, escaped)
    return text.encode("utf-8", "backslashreplace")


def key(identifier: Any) -> str:
    """Return a dictionary key for the id of a message. The ids 1 and "1" get different keys, as
    JSON-RPC demands.
    """
    return json.dumps(identifier)


def below(root: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return tool parameters whose absolute `path` is made relative to the folder `root`; the path
    of the folder itself becomes "", which means all of it. Return the same object if nothing
    changes.
    """
    arguments = params.get("arguments")
    path = arguments.get("path") if isinstance(arguments, dict) else None
    if not root or not isinstance(path, str) or not f"{path}/".startswith(f"{root}/") or "/../" in f"{path}/":
        return params
    return {**params, "arguments": {**params["arguments"], "path": path[len(root) + 1 :]}}


def with_operation(message: dict[str, Any], operation: str | None = None) -> dict[str, object]:
    """Return a tool call with a new operation id and the time of the call, instead of those that
    the client stated (PROTOCOL.md 7.12).

    Args:
        operation: the id, if this device has assigned one already.
    """
    import secrets  # imported late: only sessions that store something need it

    params = message["params"]
    given = params.get("_meta")
    meta = {
        **(given if isinstance(given, dict) else {}),
        call_keys.OPERATION: operation or secrets.token_hex(16),
        call_keys.SAID: call_keys.said_now(),
    }
    return {**message, "params": {**params, "_meta": meta}}


def with_zone(message: dict[str, Any]) -> dict[str, object]:
    """Return a tool call with the time of the call, including the time zone, unless the client
    stated one.
    """
    meta = message["params"].get("_meta")
    if isinstance(meta, dict) and call_keys.SAID in meta:
        return message
    return with_claims(message, {call_keys.SAID: call_keys.said_now()})


def without_claims(message: dict[str, Any]) -> dict[str, object]:
    """Return a tool call without the fields that only this device may set: the class of the stored
    text (docs/agents.md), and the state of the files that the text is about.
    """
    meta = message["params"].get("_meta")
    if not isinstance(meta, dict) or _CLAIMS.isdisjoint(meta):
        return message
    kept = {name: value for name, value in meta.items() if name not in _CLAIMS}
    return {**message, "params": {**message["params"], "_meta": kept}}


def without_answer(message: dict[str, Any]) -> dict[str, Any]:
    """Return a tool call without the user's answer to a question of this device, which the daemon
    must not see. Return the same object if it contains no answer.
    """
    params = message["params"]
    if not any(name in params for name in _ANSWERS):
        return message
    return {**message, "params": {name: value for name, value in params.items() if name not in _ANSWERS}}


def with_claims(message: dict[str, Any], claims: Mapping[str, object]) -> dict[str, object]:
    """Return a tool call with this device's `claims` in `_meta`. They replace fields of the same
    name that the client set.
    """
    params = message["params"]
    given = params.get("_meta")
    meta = {**(given if isinstance(given, dict) else {}), **claims}
    return {**message, "params": {**params, "_meta": meta}}


_CLAIMS = frozenset({call_keys.CLASS, call_keys.SEEN_PARTS})


class _TwiceError(ValueError):
    """An object contains a name twice."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _TwiceError
    return found


@dataclass(slots=True, eq=False)
class PendingCall:
    """A client's request that has no response yet. It is parsed once, and all code that answers or
    seals it uses the same message.
    """

    message: dict[str, Any]
    line: bytes
    """The encoded message, sent if nothing in it has to be sealed."""
    tool: str | None
    is_repeatable: bool
    is_read_only: bool = False
    """The catalogue lists its tool as read-only."""
    offline: str = "fail"
    """How the call is handled while the daemon is unreachable (`ToolCatalogue.offline`)."""
    timer: asyncio.TimerHandle | None = None
    is_sent: bool = False
    session_id: str = ""
    """Id of the connection that the call was sent on; "" before."""
    repeats: int = 0
    is_settled: bool = False
    """The client got its response, or cancelled the call."""
    is_taken: bool = False
    """This device answers the call instead of the daemon."""
    is_level: bool = False
    """When the call was sent, the daemon was known to have all files of this device."""
    is_answered: bool = False
    """The daemon's response is being completed; a second one is ignored."""
    is_asked_again: bool = False
    """The first response found nothing while files were on their way to the daemon, so the call was
    sent again.
    """
    lacking: Behind | None = None
    """The files that the daemon still lacked when the call was sent again."""
    task_id: str = ""
    """Id of the handle that the client got in place of the result, if it did (`task_handles`)."""
    is_stream: bool = False
    """The response ends a notification stream and may never come: shutdown does not wait for it,
    and a broken link does not end it.
    """
    is_asking: bool = False
    """The result says only that the user is asked: the answer comes with the same call, repeated."""
    is_acknowledged: bool = False
    """The daemon has acknowledged the stream in its present session."""
    began: float = field(default_factory=time.monotonic)
    is_bound: bool = False
    """The call comes from a caller with fewer rights than this device, which only the daemon can
    enforce: it is never answered or queued here.
    """

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
        """Return the parameters; an empty dict if they are not an object."""
        params = self.message.get("params")
        return params if isinstance(params, dict) else {}

    @property
    def meta(self) -> dict[str, Any]:
        """Return the `_meta` of the parameters; an empty dict if it is not an object."""
        meta = self.params.get("_meta")
        return meta if isinstance(meta, dict) else {}

    @property
    def token(self) -> Any:
        """Return the token by which the client gets progress notifications; None if it wants none."""
        return self.meta.get("progressToken")

    @property
    def operation(self) -> str | None:
        """Return the operation id, by which the daemon recognizes a repeated call; None if the call
        has none.
        """
        operation: str | None = self.meta.get(call_keys.OPERATION)
        return operation

    @property
    def time_text(self) -> str | None:
        """Return the time of the call in ISO 8601 with the time zone; None if the call states none."""
        said: str | None = self.meta.get(call_keys.SAID)
        return said

    @property
    def class_(self) -> str | None:
        """Return the class of the text to store, as this device has set it (docs/agents.md); None
        without one.
        """
        said: str | None = self.meta.get(call_keys.CLASS)
        return said

    @property
    def is_modern(self) -> bool:
        """Return True if the call uses the 2026-07-28 version of MCP."""
        return VERSION_KEY in self.meta

    @property
    def is_structured(self) -> bool:
        """Return True if the client asks for structured content beside the text."""
        return self.meta.get(call_keys.STRUCTURED) is True

    def disarm(self) -> None:
        if self.timer:
            self.timer.cancel()


@dataclass(slots=True, eq=False)
class OutgoingLine:
    """A message that is queued for the daemon.

    Attributes:
        message: the message, parsed.
        data: the encoded message; made from `message` if left out.
        call: the client's call that the message is; None for any other message.
        session_id: the connection to send it on, for a message about an earlier call; "" for the
            current one.
        is_ready: True if it may be sent: its credentials are sealed, or it contains none.
    """

    message: dict[str, Any]
    data: bytes = b""
    call: PendingCall | None = None
    session_id: str = ""
    is_ready: bool = False

    def __post_init__(self) -> None:
        self.data = self.data or encode_message(self.message)

    @property
    def is_wanted(self) -> bool:
        """Return False if the message is a call that was answered or cancelled while it was queued."""
        return self.call is None or not (self.call.is_settled or self.call.is_taken)


class OutgoingQueue:
    """A queue of messages to the daemon, in order. It separates the client from the network:
    neither reading the client's next line nor a call's deadline waits for the network.
    """

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
        """Send messages in order until cancelled, each one once it is sealed.

        Yields:
            each call that cannot be sent, with the error.
        """
        import asyncio

        from confide_crypto.transport.task_group import raise_if_cancelled

        self._is_filled = asyncio.Event()
        while True:
            while self._lines:
                line = self._lines[0]
                if line.is_wanted and not line.is_ready:
                    # It stays in the queue meanwhile: the link may break, or move to a connection
                    # on which other messages come first.
                    error = await self._prepare(line, link, sealed)
                    if error is not None and line.call is not None and line.is_wanted:
                        yield line.call, error
                    continue
                self._lines.popleft()
                if not line.is_wanted:
                    continue
                if line.call is not None:
                    line.call.session_id = link.session_id
                # If the link breaks here, the daemon may or may not have the message: `on_down`
                # decides about the call.
                try:
                    await link.send_message(line.data, line.session_id)
                except ConnectionLost:
                    raise_if_cancelled()
            self._is_filled.clear()
            await self._is_filled.wait()

    async def _prepare(self, line: OutgoingLine, link: Link, sealed: SealedCalls) -> Exception | None:
        """Seal a message. On failure, remove it from the queue and return the error."""
        import asyncio

        before = link.session_id
        try:
            if not sealed.is_plain(line.message, len(line.data)):
                async with asyncio.timeout(PREPARE_DEADLINE_S):
                    line.data = await self._seal(line, link, sealed)
            line.is_ready = True
        except ConnectionLost:
            # If the link itself is down, `on_down` decides about the call; if only the connection
            # was replaced, the message stays in the queue.
            if link.session_id in ("", before):
                self._take_out(line)
        except Exception as error:
            if not isinstance(error, ConfideError | TimeoutError):
                # A bug must neither end the session nor let an unsealed message out.
                import logging  # a start has 3 ms more without it

                logging.getLogger(__name__).error("a message could not be prepared: %s", type(error).__name__)
            self._take_out(line)
            return error
        return None

    async def _seal(self, line: OutgoingLine, link: Link, sealed: SealedCalls) -> bytes:
        is_lookup, said = (line.call.is_read_only, line.call.time_text) if line.call else (False, None)
        message = await sealed.prepare(link, line.message, is_lookup=is_lookup, said=said)
        data = line.data if message is line.message else encode_message(message)
        if len(data) > MAX_LINE_BYTES:  # a placeholder is longer than many a password
            raise ToolError(f"the message is larger than {MAX_LINE_BYTES // 2**20} MiB once it is sealed")
        return data

    def _take_out(self, line: OutgoingLine) -> None:
        with suppress(ValueError):  # all were taken out meanwhile
            self._lines.remove(line)
