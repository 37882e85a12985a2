"""The server side of the Model Context Protocol on one connection, in its older and its later form
("eras"). Handlers supply the answers.

A client of the older era opens with `initialize`; a client of the later era states its version with
every request (`_meta`). The first request decides for the connection. Confide has its own loop
because importing the loop of the SDK also loads an HTTP client, Starlette, OAuth and some three
hundred pydantic models: 25 MB per daemon and half a second at start. The HTTP gateway uses the SDK.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, TypeGuard

from confide_crypto.errors import RequestError
from confide_crypto.limits import PARSED_ASIDE
from confide_crypto.transport.task_group import TaskGroup, raise_if_cancelled
from confide_memory.forms import Kind, flag, items, optional, raw, text

log = logging.getLogger(__name__)

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions that begin with `initialize`, oldest first."""
MODERN_VERSIONS: Final = ("2026-07-28",)
"""Revisions that state their version in every request. A proxy ships both lists; a test compares
them with the SDK's.
"""

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
UNSUPPORTED_VERSION: Final = -32022
INVALID: Final = "Invalid request parameters"

_RESERVED: Final = "io.modelcontextprotocol/"
VERSION, CAPABILITIES, CLIENT = (
    f"{_RESERVED}protocolVersion",
    f"{_RESERVED}clientCapabilities",
    f"{_RESERVED}clientInfo",
)
SERVER, SUBSCRIPTION, LOG_LEVEL = f"{_RESERVED}serverInfo", f"{_RESERVED}subscriptionId", f"{_RESERVED}logLevel"
_LEVELS: Final = frozenset({"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"})
_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F]")
"""Spellings of half a surrogate pair in JSON."""

Message: TypeAlias = dict[str, Any]
"""A message, or the result in one, as on the wire."""
Send: TypeAlias = Callable[[Message], Awaitable[None]]


class ProtocolError(Exception):
    """An error that is sent as the answer to a request.

    Attributes:
        code: the error code of JSON-RPC or MCP.
        data: more data about the error, or None.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class McpRequest(Protocol):
    """A request from a client, with methods to send notifications to it."""

    @property
    def id(self) -> str | int: ...
    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters as received; they have passed the checks in `METHODS`."""

    @property
    def is_modern(self) -> bool: ...
    @property
    def session(self) -> str:
        """The id of the MCP session that the request belongs to."""

    async def notify(self, method: str, params: Message) -> None:
        """Send a notification about this request, before it is answered."""

    async def notify_session(self, method: str, params: Message | None = None) -> None:
        """Send a notification to the request's session. It is ignored if the session has ended."""

    async def report(self, done: float, total: float | None, message: str) -> None:
        """Send the progress of the request, if the client has asked for it."""


Handler: TypeAlias = Callable[[McpRequest], Awaitable[Message]]
"""Answers a request. Raises ProtocolError."""


@dataclass(frozen=True, slots=True)
class Method:
    """A method of the protocol.

    Attributes:
        form: the expected form of its parameters.
        is_older, is_modern: True if the older or the later form of the protocol has the method.
        is_cached: True if its results state how long they may be cached.
    """

    form: Mapping[str, Kind]
    is_older: bool = True
    is_modern: bool = True
    is_cached: bool = False


def _table(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = body.get(name)
    if not isinstance(value, dict):
        raise RequestError("invalid", f"'{name}' must be an object")
    return value


def _texts(body: Mapping[str, object], name: str) -> dict[str, object]:
    value = _table(body, name)
    for key in value:
        text(value, key)
    return value


def _read_implementation(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = _table(body, name)
    return {"name": text(value, "name"), "version": text(value, "version")}


def _read_filter(body: Mapping[str, object], name: str) -> dict[str, object]:
    """Read the filter of a stream of notifications, without the kinds that it does not want."""
    value = _table(body, name)
    kinds = ("toolsListChanged", "promptsListChanged", "resourcesListChanged")
    wanted: dict[str, object] = {kind: True for kind in kinds if optional(flag(), default=False)(value, kind)}
    if uris := optional(items(1_000_000), default=[])(value, "resourceSubscriptions"):
        wanted["resourceSubscriptions"] = [text({"uri": uri}, "uri") for uri in uris]
    return wanted


def _read_capabilities(body: Mapping[str, object], name: str) -> dict[str, object]:
    """Read the capabilities of a client, each of which must be an object."""
    value = _table(body, name)
    for kind in ("experimental", "sampling", "elicitation", "roots", "tasks", "extensions"):
        optional(_table)(value, kind)
    return value


_LIST: Final[Mapping[str, Kind]] = {"cursor": optional(text)}
METHODS: Final[Mapping[str, Method]] = {
    "initialize": Method(
        {"protocolVersion": text, "capabilities": _read_capabilities, "clientInfo": _read_implementation},
        is_modern=False,
    ),
    "ping": Method({}, is_modern=False),
    "server/discover": Method({}, is_older=False, is_cached=True),
    "tools/list": Method(_LIST, is_cached=True),
    "tools/call": Method({"name": text, "arguments": optional(_table)}),
    "resources/list": Method(_LIST, is_cached=True),
    "resources/templates/list": Method(_LIST, is_cached=True),
    "resources/read": Method({"uri": text}, is_cached=True),
    "resources/subscribe": Method({"uri": text}, is_modern=False),
    "resources/unsubscribe": Method({"uri": text}, is_modern=False),
    "subscriptions/listen": Method({"notifications": _read_filter}, is_older=False),
    "prompts/list": Method(_LIST, is_cached=True),
    "prompts/get": Method({"name": text, "arguments": optional(_texts)}),
}
"""All methods and the forms of their parameters; a server may implement fewer."""


def stream_filter(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the filter of a `subscriptions/listen` request, in the form in which the
    acknowledgement repeats it.
    """
    return _read_filter(params, "notifications")


def complete(method: str, result: Message) -> Message:
    """Return a result with the fields that later versions of the protocol add."""
    return {
        **result,
        "resultType": "complete",
        **({"ttlMs": 0, "cacheScope": "private"} if METHODS[method].is_cached else {}),
    }


async def parse(data: bytes) -> Message:
    """Parse a JSON-RPC message. Raises ValueError if it is malformed."""
    if len(data) <= PARSED_ASIDE:
        return _parse(data)
    return await asyncio.to_thread(_parse, data)


def _parse(data: bytes) -> Message:
    try:
        message = json.loads(data)
        if _HALF.search(data) is not None:
            json.dumps(message, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("too deep") from None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise ValueError("not JSON-RPC")
    if not isinstance(message.get("params"), dict | None):
        raise ValueError("params are an object")
    is_answer = _is_id(message.get("id")) and isinstance(message.get("result"), dict)
    if not isinstance(message.get("method"), str) and not is_answer and not isinstance(message.get("error"), dict):
        raise ValueError("neither a request nor an answer")
    return message


def encode(message: Message) -> bytes:
    """Serialize a message for sending."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


class Conversation:
    """Receives the requests of one client and sends the answers. It runs until cancelled; each
    request is a task of its own.
    """

    def __init__(self, server: Message, handlers: Mapping[str, Handler], send: Send) -> None:
        """Args:
        server: `serverInfo`, `capabilities` and `instructions`, as on the wire.
        handlers: by method; `initialize`, `ping` and `server/discover` are answered here.
        send: transmits to the client; raises nothing after its disconnection.
        """
        self.send = send
        self._server = server
        self._handlers = {"ping": pong, "server/discover": discovering(server), **handlers}
        self._is_modern: bool | None = None
        self._is_open = False
        self._under: dict[str | int, asyncio.Task[None]] = {}
        self._group: TaskGroup | None = None
        self._is_running = asyncio.Event()

    async def run(self) -> None:
        """Answer the messages passed to `receive`, until cancelled."""
        async with TaskGroup() as self._group:
            self._is_running.set()
            await asyncio.Event().wait()

    async def receive(self, message: Message) -> None:
        """Accept a parsed message. A message without a method, such as a response, is ignored."""
        await self._is_running.wait()
        assert self._group is not None
        method, params, key = message.get("method"), message.get("params"), message.get("id")
        if not isinstance(method, str):
            return
        if not _is_id(key):
            self._on_notification(method, params or {})
            return
        if self._is_modern is None:
            self._is_modern = method != "initialize" and VERSION in _meta(params)
        request = _Request(self, key, method, params or {}, self._is_modern)
        if method == "initialize":
            await self._answer(request)  # what the client has sent behind it finds the session open
            return
        task = self._under[_comparable_id(key)] = self._group.create_task(self._answer(request))
        task.add_done_callback(lambda done: self._forget(_comparable_id(key), done))

    def _forget(self, key: str | int, task: asyncio.Task[None]) -> None:
        if self._under.get(key) is task:
            del self._under[key]

    def _on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        if method == "notifications/initialized":
            self._is_open = True
        elif method == "notifications/cancelled" and _is_id(key := params.get("requestId")):
            task = self._under.get(_comparable_id(key))
            if task is not None:
                task.cancel()

    async def _answer(self, request: _Request) -> None:
        """Answer one request, unless its client cancels it."""
        answer: Message = {"jsonrpc": "2.0", "id": request.id}
        try:
            answer["result"] = await self._result(request)
        except ProtocolError as error:
            data = {} if error.data is None else {"data": error.data}
            answer["error"] = {"code": error.code, "message": error.message, **data}
        except Exception as error:
            raise_if_cancelled()
            # Neither the peer nor the log gets the error's text: it may quote stored or requested
            # contents.
            log.error("a request of an agent broke: %s", type(error).__name__)
            answer["error"] = {"code": INTERNAL_ERROR, "message": "Internal server error"}
        await self.send(answer)

    async def _result(self, request: _Request) -> Message:
        if request.is_modern:
            self._require_envelope(request)
        elif request.method != "initialize" and VERSION in _meta(request.params):
            raise ProtocolError(
                INVALID_REQUEST,
                "this connection serves the handshake protocol era; requests carrying the 2026-07-28 envelope are not accepted on it",
            )
        method = METHODS.get(request.method)
        if method is None or not (method.is_modern if request.is_modern else method.is_older):
            raise ProtocolError(METHOD_NOT_FOUND, "Method not found", request.method)
        _require_form(method, request)
        if request.method == "initialize":
            return self._initialize(request.params)
        handler = self._handlers.get(request.method)
        if handler is None:
            raise ProtocolError(METHOD_NOT_FOUND, "Method not found", request.method)
        if not request.is_modern and not self._is_open and request.method != "ping":
            raise ProtocolError(INVALID_PARAMS, INVALID, "")
        result = await handler(request)
        if not request.is_modern:
            return result
        meta = {**result.get("_meta", {}), SERVER: self._server["serverInfo"]}
        return complete(request.method, {**result, "_meta": meta})

    def _initialize(self, params: Mapping[str, Any]) -> Message:
        asked = params["protocolVersion"]
        version = asked if asked in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
        self._is_open = True
        return {
            "protocolVersion": version,
            **{name: self._server[name] for name in ("capabilities", "serverInfo", "instructions")},
        }

    @staticmethod
    def _require_envelope(request: _Request) -> None:
        """Raise ProtocolError if the fields of a later-era request are missing, or its version is
        unsupported.
        """
        if request.method == "initialize":
            asked = request.params.get("protocolVersion")
            said = "connection is serving the 2026-07-28 protocol; the initialize handshake is not accepted"
            raise ProtocolError(UNSUPPORTED_VERSION, said, _supported_versions(asked))
        if not isinstance(meta := request.params.get("_meta"), dict):
            said = (
                f"params._meta must be an object carrying the required '{VERSION}' and '{CAPABILITIES}' envelope keys"
            )
            raise ProtocolError(INVALID_PARAMS, said)
        if missing := [name for name in (VERSION, CAPABILITIES) if name not in meta]:
            said = f"params._meta is missing the required envelope key(s): {', '.join(missing)}"
            raise ProtocolError(INVALID_PARAMS, said)
        if not isinstance(version := meta[VERSION], str):
            raise ProtocolError(INVALID_PARAMS, "the protocol-version envelope value must be a string")
        if version not in MODERN_VERSIONS:
            raise ProtocolError(UNSUPPORTED_VERSION, "Unsupported protocol version", _supported_versions(version))


@dataclass(frozen=True, slots=True)
class _Request:
    """A request of a conversation, as handlers see it (`McpRequest`)."""

    conversation: Conversation
    id: str | int
    method: str
    params: Mapping[str, Any]
    is_modern: bool
    session: str = ""

    async def notify(self, method: str, params: Message) -> None:
        await self.notify_session(method, params)

    async def notify_session(self, method: str, params: Message | None = None) -> None:
        said = {} if params is None else {"params": params}
        await self.conversation.send({"jsonrpc": "2.0", "method": method, **said})

    async def report(self, done: float, total: float | None, message: str) -> None:
        token = _meta(self.params).get("progressToken")
        if _is_id(token):
            fields = {"progressToken": token, "progress": done, "message": message}
            await self.notify("notifications/progress", fields if total is None else {**fields, "total": total})


async def pong(_asked: McpRequest) -> Message:
    """Return the answer to `ping`."""
    return {}


def discovering(server: Message) -> Handler:
    """Return the handler of `server/discover`, which answers with the server's description
    (`server`).
    """

    async def discover(_asked: McpRequest) -> Message:
        described = {name: server[name] for name in ("capabilities", "instructions")}
        return {"supportedVersions": list(MODERN_VERSIONS), **described}

    return discover


def _require_form(method: Method, request: _Request) -> None:
    """Raise ProtocolError if the parameters or `_meta` of a request are malformed."""
    try:
        for name, kind in method.form.items():
            kind(request.params, name)
        meta = optional(_table, default={})(request.params, "_meta")
        if not isinstance(raw(meta, "progressToken"), str | int | None):
            raise ValueError
        if request.is_modern:
            _read_capabilities(meta, CAPABILITIES)
            optional(_read_implementation)(meta, CLIENT)
            if not (meta.get(LOG_LEVEL) is None or meta[LOG_LEVEL] in _LEVELS):
                raise ValueError
    except (RequestError, ValueError, TypeError):
        raise ProtocolError(INVALID_PARAMS, INVALID, "") from None


def _meta(params: Mapping[str, Any] | None) -> Mapping[str, Any]:
    meta = (params or {}).get("_meta")
    return meta if isinstance(meta, dict) else {}


def _supported_versions(asked: object) -> Message:
    return {"supported": list(MODERN_VERSIONS), **({"requested": asked} if isinstance(asked, str) else {})}


def _is_id(value: Any) -> TypeGuard[str | int]:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _comparable_id(key: str | int) -> str | int:
    """Return an id in the form used for comparison: some clients cancel 7 as "7"."""
    with suppress(ValueError):
        return int(key)
    return key
