"""The daemon's JSON-RPC messages, read with suspicion: what of them may reach the client, and in whose words.

The client trusts what stands on its stdin. A daemon that may write there as it likes asks its user for a password
(`elicitation/create`), uses its model (`sampling/createMessage`), lists its folders (`roots/list`), or answers calls that others have
to answer. So the rule is a list of what passes, and everything else does not: answers, which the tunnel matches with the calls that
wait for them, and the notifications of `NEWS`.

What passes is taken apart here and written anew from what was read, unless an answer's bytes can be read in one way only. They
cannot where

- a line end stands in them: the client reads lines, JSON may hold line ends between its tokens, and between two of them a whole forged
  message can stand. Some clients end lines at U+0085, U+2028 and U+2029 too, which JSON may hold in its texts;
- a name stands twice in an object, "id" say: two parsers take two different ones;
- an answer has further members: Go's parser takes "ID" for "id";
- they are no strict UTF-8, or hold numbers that are none (NaN): these are refused altogether.

To write each answer anew would be simpler, and takes three times as long as to parse it (20 KB); to look takes half as long.
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
from confide_proxy.mcp.jsonrpc import METHOD_NOT_FOUND, PendingCall, encoded, key
from confide_proxy.mcp.subscriptions import ACKNOWLEDGED, CHANGED, UPDATED, Subscriptions, stream_of, uris_of

CANCELLED: Final = "notifications/cancelled"
PROGRESS: Final = "notifications/progress"
NEWS: Final = frozenset({ACKNOWLEDGED, CANCELLED, PROGRESS, "notifications/message", UPDATED, *CHANGED.values()})
"""Notifications that may pass. None of them asks for anything."""
MAX_DEPTH: Final = 64
"""Of a result: our tools' have seven. Parsers of clients give up, or worse, at 100 (.NET: 64) and more."""
STRUCTURED: Final = "structuredContent"
_CONTENTS: Final = frozenset({"text", "image", "audio", "resource", "resource_link"})
"""What a tool's result may consist of (MCP 2025-11-25, "Tool Result")."""
_PLAIN: Final = {"jsonrpc", "id", "result"}
_LINE_ENDS: Final = tuple(end.encode() for end in ("\n", "\r", "\x85", "\u2028", "\u2029"))
_COMPLETE: Final = "complete"
_RESULT_TYPE: Final = "resulttype"
_ASKS_FOR_ADDRESS: Final = -32042
"""The error by which a server has its user open an address ("URL elicitation", MCP 2025-11-25)."""
_OTHER_VERSION: Final = -32022
"""The one error whose `data` a client needs: the versions that the daemon speaks. No other's passes."""
_MAX_SENTENCE: Final = 4096
_MAX_ID: Final = 256


class ResponseMessage(NamedTuple):
    """An answer, to whatever has that id: `result` or `error` under its name; None: it has neither of the form that MCP has.

    Attributes:
        line: the whole message, where it may pass as it came.
    """

    identifier: Any
    outcome: dict[str, Any] | None
    line: bytes | None = None


class NotificationMessage(NamedTuple):
    """A notification of `NEWS`."""

    method: str
    params: dict[str, object]

    @property
    def message(self) -> dict[str, Any]:
        """As the client gets it."""
        return {"jsonrpc": "2.0", "method": self.method, **({"params": self.params} if self.params else {})}


class RequestMessage(NamedTuple):
    """A request, which no daemon makes of a client."""

    identifier: Any

    @property
    def refusal(self) -> bytes | None:
        """What the daemon is told; None where its id is none."""
        if not isinstance(self.identifier, str | int) or len(str(self.identifier)) > _MAX_ID:
            return None
        error = {"code": METHOD_NOT_FOUND, "message": "a daemon asks nothing of an agent's client"}
        return encoded({"jsonrpc": "2.0", "id": self.identifier, "error": error})


def read(data: bytes) -> ResponseMessage | NotificationMessage | RequestMessage | None:
    """What a message of the daemon's says; None where it is a notification that does not pass.

    Raises ProtocolViolation: it is no JSON-RPC 2.0 message, or a batch of them, which nobody has asked for.
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
        # What opens so few brackets is not nested deeper.
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
    """Whether a result has the form of a tool's: what a client expects of it, it may rely on."""
    content = result.get("content")
    return (
        isinstance(content, list)
        and all(_is_content(part) for part in content)
        and isinstance(result.get(STRUCTURED, {}), dict)
        and isinstance(result.get("isError", False), bool)
    )


def refusal_of(result: dict[str, object]) -> RequestError | None:
    """The error that a tool's result is; NotNowError where the call may be made later. None: it is none, or its code is not told."""
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


def as_text(result: dict[str, Any]) -> bool:
    """Take the structured form out of a tool's result that was asked for without; whether there was one.

    A daemon that sends it is older, or has its reasons: many clients show their model that alone, and so no word of whose data it is.
    """
    names = [name for name in result if name.casefold() == STRUCTURED.casefold()]  # Go's parser takes any case
    for name in names:
        del result[name]
    return bool(names)


def is_wanted(news: NotificationMessage, calls: Mapping[str, PendingCall], subscribed: Subscriptions) -> bool:
    """Whether news is for one of the client's calls that has gone up, by their keys, where it is about one: of another's, or of one that
    this machine answers by itself, it would be a lie. News of a resource are for who has asked for them: a client reads what is named
    there, without its user, and an address of the daemon's choosing would be read too."""
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
        # Of the 2026-07-28 era. "input_required" is how a server elicits, samples and lists roots there: a request in an answer's clothes.
        # Go's parser takes "ResultType" for it.
        is_final = all(told == _COMPLETE for name, told in result.items() if name.casefold() == _RESULT_TYPE)
        return {"result": result} if is_final and not (may_be_deep and _is_too_deep(result)) else None
    if isinstance(error, dict) and "result" not in message:
        code, why = error.get("code"), error.get("message")
        if type(code) is int and code != _ASKS_FOR_ADDRESS and isinstance(why, str):
            told = {"code": code, "message": why[:_MAX_SENTENCE]}
            data = error.get("data")
            is_told = code == _OTHER_VERSION and not _is_too_deep(data)
            return {"error": {**told, "data": data} if is_told else told}
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
    # NaN and the infinities, 1e999 among them: Python reads and writes them, and no other parser does.
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number
