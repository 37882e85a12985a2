"""Validation of the daemon's JSON-RPC messages: the proxy decides which of them reach the client,
and in which form.

The client trusts its stdin. A daemon that could write anything there could ask the user for a
password (`elicitation/create`), use the client's model (`sampling/createMessage`), list its folders
(`roots/list`), or answer calls of other servers. So the proxy passes only what is on a list:
responses, which the tunnel matches with the calls that wait for them, and the notifications in
`NEWS`.

Messages that pass are parsed and encoded again. Only a response whose bytes every parser reads in
the same way is passed on unchanged. Parsers may differ on the bytes if

- they contain a line end: the client reads lines, JSON allows line ends between its tokens, and a
  whole forged message fits between two of them. Some clients end lines at U+0085, U+2028 and U+2029
  too, which JSON allows within its strings;
- an object contains a name twice, such as "id": two parsers take two different values;
- a response has further members: Go's parser takes "ID" for "id";
- they are not strict UTF-8, or contain NaN or an infinity: these are refused altogether.

To encode each response again would be simpler, but takes three times as long as parsing it (20 KB);
this check takes half as long.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from confide_crypto.errors import ProtocolViolation, RequestError
from confide_memory.tools import call as call_keys
from confide_memory.tools.call import CODE
from confide_proxy.errors import FULL, LATER, NotNowError
from confide_proxy.mcp.features.subscriptions import ACKNOWLEDGED, CHANGED, UPDATED, Subscriptions, stream_of, uris_of
from confide_proxy.mcp.jsonrpc import METHOD_NOT_FOUND, PendingCall, encode_message, key

CANCELLED: Final = "notifications/cancelled"
PROGRESS: Final = "notifications/progress"
NEWS: Final = frozenset({ACKNOWLEDGED, CANCELLED, PROGRESS, "notifications/message", UPDATED, *CHANGED.values()})
"""Notifications that may pass. They request nothing from the client."""
MAX_DEPTH: Final = 64
"""Deepest nesting of a result; our tools' have seven levels. Parsers of clients give up, or worse,
at 100 (.NET: 64) and more.
"""
STRUCTURED: Final = "structuredContent"
_CONTENTS: Final = frozenset({"text", "image", "audio", "resource", "resource_link"})
"""Types of content in a tool's result (MCP 2025-11-25, "Tool Result")."""
_PLAIN: Final = {"jsonrpc", "id", "result"}
_LINE_ENDS: Final = tuple(end.encode() for end in ("\n", "\r", "\x85", "\u2028", "\u2029"))
_COMPLETE: Final = "complete"
_RESULT_TYPE: Final = "resulttype"
_ASKS_FOR_ADDRESS: Final = -32042
"""Code of the error by which a server makes its user open a URL ("URL elicitation", MCP
2025-11-25).
"""
_OTHER_VERSION: Final = -32022
"""Code of the only error whose `data` passes, since the client needs it: the versions that the
daemon supports.
"""
_MAX_SENTENCE: Final = 4096
_MAX_ID: Final = 256


class ResponseMessage(NamedTuple):
    """A response from the daemon.

    Attributes:
        outcome: the JSON-RPC `result` or `error` under that name; None if the response has neither
            in MCP's form.
        line: the message's own bytes, if they may be passed on unchanged.
    """

    identifier: Any
    outcome: dict[str, Any] | None
    line: bytes | None = None


class NotificationMessage(NamedTuple):
    """A notification from the daemon that the client may get: its method is in `NEWS`."""

    method: str
    params: dict[str, object]

    @property
    def message(self) -> dict[str, Any]:
        """Return the notification as a JSON-RPC message for the client."""
        return {"jsonrpc": "2.0", "method": self.method, **({"params": self.params} if self.params else {})}


class RequestMessage(NamedTuple):
    """A request from the daemon, which is always refused."""

    identifier: Any

    @property
    def refusal(self) -> bytes | None:
        """Return the encoded error response that refuses the request; None if the request's id is
        not valid.
        """
        if not isinstance(self.identifier, str | int) or len(str(self.identifier)) > _MAX_ID:
            return None
        error = {"code": METHOD_NOT_FOUND, "message": "a daemon asks nothing of an agent's client"}
        return encode_message({"jsonrpc": "2.0", "id": self.identifier, "error": error})


def read(data: bytes) -> ResponseMessage | NotificationMessage | RequestMessage | None:
    """Parse a message from the daemon. Return None for a notification that is not passed on.

    Raises ProtocolViolation if it is not a JSON-RPC 2.0 message, or if it is a batch.
    """
    doubled: list[bool] = []

    def once(pairs: list[tuple[str, Any]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) != len(pairs):
            doubled.append(True)
        return found

    try:
        text = data.decode("utf-8")
        message = json.loads(text, object_pairs_hook=once, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise ProtocolViolation("the peer broke the protocol: a message that is not JSON-RPC")
    if "method" not in message:
        # A text with so few brackets cannot be nested deeper.
        outcome = _outcome(message, may_be_deep=text.count("{") + text.count("[") > MAX_DEPTH)
        is_plain = message.keys() == _PLAIN and not doubled and not any(end in data for end in _LINE_ENDS)
        return ResponseMessage(message.get("id"), outcome, data if is_plain else None)
    if "id" in message:
        return RequestMessage(message["id"])
    method, params = message["method"], message.get("params", {})
    if not isinstance(method, str) or method not in NEWS or not isinstance(params, dict) or _is_too_deep(params):
        return None
    return NotificationMessage(method, params)


def is_result_of_tool(result: dict[str, Any]) -> bool:
    """Return True if `result` has the form of a tool's result in MCP, which clients rely on."""
    content = result.get("content")
    return (
        isinstance(content, list)
        and all(_is_content(part) for part in content)
        and isinstance(result.get(STRUCTURED, {}), dict)
        and isinstance(result.get("isError", False), bool)
    )


def refusal_of(result: dict[str, object]) -> RequestError | None:
    """Return the error in a tool's result, as a NotNowError if the call may be repeated later.
    Return None if the result is no error, or has no error code.
    """
    meta, content = result.get("_meta"), result.get("content")
    meta = meta if isinstance(meta, dict) else {}
    code = meta.get(CODE)
    if result.get("isError") is not True or not isinstance(code, str) or not isinstance(content, list) or not content:
        return None
    text = content[0].get("text") if isinstance(content[0], dict) else None
    if not isinstance(text, str):
        return None
    message, _, hint = text.partition("\nhint: ")
    is_later = code in LATER and (code != FULL or meta.get(call_keys.LATER) is True)
    return (NotNowError if is_later else RequestError)(code, message, hint or None)


def as_text(result: dict[str, object]) -> bool:
    """Remove the structured content from the result of a call that did not ask for it; return True
    if there was any.

    Only an older or a malicious daemon sends it. Many clients then show their model this content
    alone, without the text that says whose data it is.
    """
    names = [name for name in result if name.casefold() == STRUCTURED.casefold()]  # Go's parser takes any case
    for name in names:
        del result[name]
    return bool(names)


def is_wanted(news: NotificationMessage, calls: Mapping[str, PendingCall], subscribed: Subscriptions) -> bool:
    """Return True if the client may get a notification.

    A notification about a call must name a call that was sent to the daemon: progress of another
    one, or of one that this device answers, would be forged. A notification about a resource must
    name one that the client is subscribed to: clients read the named resource without asking their
    user.
    """
    if news.method == PROGRESS:
        token = key(news.params.get("progressToken"))
        return any(call.is_sent and call.token is not None and key(call.token) == token for call in calls.values())
    if news.method in (ACKNOWLEDGED, CANCELLED):
        named = stream_of(news.params) if news.method == ACKNOWLEDGED else news.params.get("requestId")
        stream = calls.get(key(named))
        return stream is not None and stream.is_stream
    if news.method == UPDATED:
        stream = calls.get(key(stream_of(news.params)))
        uri = news.params.get("uri")
        return subscribed.has(uri) or (stream is not None and stream.is_stream and uri in uris_of(stream))
    return True


def _is_content(part: Any) -> bool:
    kind = part.get("type") if isinstance(part, dict) else None
    return isinstance(kind, str) and kind in _CONTENTS and (kind != "text" or isinstance(part.get("text"), str))


def _outcome(message: dict[str, Any], *, may_be_deep: bool) -> dict[str, Any] | None:
    result, error = message.get("result"), message.get("error")
    if isinstance(result, dict) and "error" not in message:
        # In the 2026-07-28 era, "input_required" is how a server elicits, samples and lists roots:
        # a request in the form of a result. Go's parser takes "ResultType" for it.
        is_final = all(fields == _COMPLETE for name, fields in result.items() if name.casefold() == _RESULT_TYPE)
        return {"result": result} if is_final and not (may_be_deep and _is_too_deep(result)) else None
    if isinstance(error, dict) and "result" not in message:
        code, why = error.get("code"), error.get("message")
        if type(code) is int and code != _ASKS_FOR_ADDRESS and isinstance(why, str):
            fields = {"code": code, "message": why[:_MAX_SENTENCE]}
            data = error.get("data")
            is_told = code == _OTHER_VERSION and not _is_too_deep(data)
            return {"error": {**fields, "data": data} if is_told else fields}
    return None


def _is_too_deep(value: Any) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
        level = [one for one in level if isinstance(one, dict | list)]
        if not level:
            return False
    return True


def _finite(text: str) -> float:
    # Python reads and writes NaN and the infinities (also 1e999), but other parsers do not.
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number
