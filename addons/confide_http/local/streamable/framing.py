"""What a POST says of itself, in headers and in the body, which have to agree; and how answers are framed. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from starlette.datastructures import Headers
from starlette.responses import Response

from confide_http.local.upstream import PROTOCOL, Fault, Message, Params, ToolResponse
from confide_proxy.mcp.catalogue import SERVER_INFO_KEY, VERSION_KEY
from confide_proxy.mcp.jsonrpc import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR, encoded

VERSION_HEADER: Final = "mcp-protocol-version"
METHOD_HEADER: Final = "mcp-method"
NAME_HEADER: Final = "mcp-name"
SESSION_HEADER: Final = "mcp-session-id"
_ONCE: Final = (VERSION_HEADER, METHOD_HEADER, NAME_HEADER, SESSION_HEADER)
NAMES: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Methods whose `Mcp-Name` repeats a parameter, and which (MCP 2026-07-28, "Streamable HTTP")."""
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
"""Of errors in the later era; others come with 200, as all do in the older one."""
_LATER_ALONE: Final = ("resultType", "cacheScope", "ttlMs")
JSON: Final = "application/json"
COMMENT: Final = b":\n\n"
"""Keeps a stream open through whatever closes silent ones."""


class Problem(NamedTuple):
    """Why a request is not taken, as JSON-RPC says it."""

    code: int
    message: str
    data: Any = None


def twice(headers: Headers) -> str | None:
    """A header that must stand once and stands more often: two readers would take two different ones."""
    return next((name for name in _ONCE if len(headers.getlist(name)) > 1), None)


def accepts(headers: Headers, kind: str) -> bool:
    """Whether `Accept` has that media type; all of them where it is missing."""
    said = headers.get("accept", "*/*")
    taken = {part.partition(";")[0].strip().lower() for part in said.split(",")}
    return bool(taken & {kind, "*/*", f"{kind.partition('/')[0]}/*"})


def is_later(message: Params, headers: Headers) -> bool:
    """Whether a message is of the 2026-07-28 era, or says so anywhere: then all of it has to."""
    return headers.get(VERSION_HEADER) == PROTOCOL or VERSION_KEY in _meta(message)


def problem_of_later(message: Params, headers: Headers) -> Problem | None:
    """Why a request of the later era is not taken: what routes it stands in the headers, and must be what the body says."""
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
        if value is not None and decoded(headers.get(NAME_HEADER)) != value:
            return Problem(HEADER_MISMATCH, f"{NAME_HEADER} is not the request's '{named}'")
    if version != PROTOCOL:
        return unsupported(version)
    return None


def unsupported(version: str) -> Problem:
    return Problem(
        UNSUPPORTED_VERSION,
        "Unsupported protocol version",
        {"supported": [PROTOCOL], "requested": version[:64]},
    )


def decoded(value: str | None) -> str | None:
    """A header's value, which may be written as `=?base64?…?=`; None where that is not written as it must be."""
    if value is None or not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    text = value[len("=?base64?") : -len("?=")]
    try:
        data = base64.b64decode(text, validate=True)
        return data.decode() if base64.b64encode(data).decode() == text else None
    except (binascii.Error, ValueError):
        return None


def as_older(result: Message) -> Message:
    """A result without what only the later era has."""
    found = {name: value for name, value in result.items() if name not in _LATER_ALONE}
    meta = found.get("_meta")
    if isinstance(meta, dict) and SERVER_INFO_KEY in meta:
        found["_meta"] = {name: value for name, value in meta.items() if name != SERVER_INFO_KEY}
        if not found["_meta"]:
            del found["_meta"]
    return found


def answered(identifier: Any, outcome: ToolResponse) -> Message:
    """The whole message of an answer."""
    return {"jsonrpc": "2.0", "id": identifier, **outcome}


def failed(identifier: Any, problem: Problem) -> Message:
    """The whole message of an error."""
    told: Fault = {"code": problem.code, "message": problem.message}
    if problem.data is not None:
        told["data"] = problem.data
    return answered(identifier, {"error": told})


def json_response(
    message: Params,
    *,
    is_later: bool = True,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """An answer as JSON; in the later era its status says what kind of error it is."""
    if status is None:
        status = _STATUS.get(message["error"].get("code"), 200) if is_later and "error" in message else 200
    return Response(encoded(dict(message)), status_code=status, media_type=JSON, headers=dict(headers or {}))


def event(message: Params) -> bytes:
    """A message as an event of a stream. `encoded` leaves no end of a line in it."""
    return b"event: message\ndata: " + encoded(dict(message)) + b"\n\n"


def _meta(message: Params) -> Params:
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta if isinstance(meta, dict) else {}
