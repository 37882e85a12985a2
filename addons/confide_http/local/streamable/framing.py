"""Checks that the headers of a POST match its body, and builds the messages of responses. Pure
functions.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from starlette.datastructures import Headers
from starlette.responses import Response

from confide_http.local.upstream import PROTOCOL, Fault, Message, Params, ToolResponse
from confide_proxy.mcp.catalogue import SERVER_INFO_KEY, VERSION_KEY
from confide_proxy.mcp.features import task_handles
from confide_proxy.mcp.jsonrpc import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR, encode_message

VERSION_HEADER: Final = "mcp-protocol-version"
METHOD_HEADER: Final = "mcp-method"
NAME_HEADER: Final = "mcp-name"
SESSION_HEADER: Final = "mcp-session-id"
_ONCE: Final = (VERSION_HEADER, METHOD_HEADER, NAME_HEADER, SESSION_HEADER)
NAMES: Final = {
    **{"tools/call": "name", "prompts/get": "name", "resources/read": "uri"},
    **dict.fromkeys(task_handles.METHODS, "taskId"),
}
"""Methods whose `Mcp-Name` repeats a parameter, with that parameter (MCP 2026-07-28, "Streamable
HTTP"; ext-tasks, "Routing Headers").
"""
HEADER_MISMATCH: Final = -32020
UNSUPPORTED_VERSION: Final = -32022
_CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
_STATUS: Final = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
"""Status of errors in the later era; others have 200, as all have in the older one."""
_LATER_ALONE: Final = ("resultType", "cacheScope", "ttlMs")
JSON: Final = "application/json"
COMMENT: Final = b":\n\n"
"""Keeps a stream open through proxies that close silent ones."""


class Problem(NamedTuple):
    """The JSON-RPC error with which a request is refused."""

    code: int
    message: str
    data: Any = None


def twice(headers: Headers) -> str | None:
    """Return the name of a header that occurs twice but must be unique, or None. Two parsers could
    read different values of it.
    """
    return next((name for name in _ONCE if len(headers.getlist(name)) > 1), None)


def accepts(headers: Headers, kind: str) -> bool:
    """Return True if the header `Accept` includes the media type `kind`, or is missing."""
    said = headers.get("accept", "*/*")
    taken = {part.partition(";")[0].strip().lower() for part in said.split(",")}
    return bool(taken & {kind, "*/*", f"{kind.partition('/')[0]}/*"})


def is_later(message: Params, headers: Headers) -> bool:
    """Return True if any part of a message names protocol version 2026-07-28; then the whole
    message must follow it.
    """
    return headers.get(VERSION_HEADER) == PROTOCOL or VERSION_KEY in _meta(message)


def problem_of_later(message: Params, headers: Headers) -> Problem | None:
    """Return the reason to refuse a message of protocol version 2026-07-28, or None. Its method and
    name must also be in headers that match the body.
    """
    meta = _meta(message)
    if missing := [name for name in (VERSION_KEY, _CAPABILITIES_KEY) if name not in meta]:
        return Problem(INVALID_PARAMS, f"params._meta lacks {', '.join(missing)}")
    version, method = meta[VERSION_KEY], message.get("method")
    if headers.get(VERSION_HEADER) != version or not isinstance(version, str):
        return Problem(HEADER_MISMATCH, f"{VERSION_HEADER} is not the version that the request says")
    if headers.get(METHOD_HEADER) != method:
        return Problem(HEADER_MISMATCH, f"{METHOD_HEADER} is not the request's method")
    named = NAMES.get(str(method))
    if named is not None:
        value = message["params"].get(named)
        if value is not None and decode_header(headers.get(NAME_HEADER)) != value:
            return Problem(HEADER_MISMATCH, f"{NAME_HEADER} is not the request's '{named}'")
    if version != PROTOCOL:
        return unsupported_version(version)
    return None


def unsupported_version(version: str) -> Problem:
    return Problem(
        UNSUPPORTED_VERSION,
        "Unsupported protocol version",
        {"supported": [PROTOCOL], "requested": version[:64]},
    )


def decode_header(value: str | None) -> str | None:
    """Decode a header's value, which may have the form `=?base64?…?=`. Return None if it is
    malformed.
    """
    if value is None or not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    text = value[len("=?base64?") : -len("?=")]
    try:
        data = base64.b64decode(text, validate=True)
        return data.decode() if base64.b64encode(data).decode() == text else None
    except (binascii.Error, ValueError):
        return None


def to_older(result: Message) -> Message:
    """Return a result without the fields that only protocol version 2026-07-28 has."""
    found = {name: value for name, value in result.items() if name not in _LATER_ALONE}
    meta = found.get("_meta")
    if isinstance(meta, dict) and SERVER_INFO_KEY in meta:
        found["_meta"] = {name: value for name, value in meta.items() if name != SERVER_INFO_KEY}
        if not found["_meta"]:
            del found["_meta"]
    return found


def response_message(identifier: Any, outcome: ToolResponse) -> Message:
    """Return the JSON-RPC message of a response."""
    return {"jsonrpc": "2.0", "id": identifier, **outcome}


def error_message(identifier: Any, problem: Problem) -> Message:
    """Return the JSON-RPC message of an error."""
    told: Fault = {"code": problem.code, "message": problem.message}
    if problem.data is not None:
        told["data"] = problem.data
    return response_message(identifier, {"error": told})


def json_response(
    message: Params,
    *,
    is_later: bool = True,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Build a JSON response. With `is_later`, for protocol version 2026-07-28, its status depends
    on the error.
    """
    if status is None:
        status = _STATUS.get(message["error"].get("code"), 200) if is_later and "error" in message else 200
    return Response(encode_message(dict(message)), status_code=status, media_type=JSON, headers=dict(headers or {}))


def event(message: Params) -> bytes:
    """Return a message as a server-sent event. The encoded message contains no line break."""
    return b"event: message\ndata: " + encode_message(dict(message)) + b"\n\n"


def _meta(message: Params) -> Params:
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta if isinstance(meta, dict) else {}
