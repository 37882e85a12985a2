"""Encodes and parses the parts of an HTTP request and its response that two nodes exchange
(PROTOCOL.md 12.5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypedDict

from starlette.types import Scope

from confide_crypto.errors import RequestError
from confide_http.door.bearer_auth import PATH

REQUEST: Final = "http"
ANSWER: Final = "answer"
LEFT: Final = "left"
METHODS: Final = ("GET", "POST", "DELETE")
_ASKED: Final = (b"accept", b"content-type", b"last-event-id")
_OF_MCP: Final = b"mcp-"
_OF_A_CONNECTION: Final = (b"connection", b"keep-alive", b"transfer-encoding", b"date", b"server")

Headers = list[tuple[bytes, bytes]]
Said = Mapping[str, object]
"""A message of another node, not validated yet."""


class CarriedRequest(TypedDict):
    """A forwarded request in its wire form, without its body."""

    method: str
    headers: list[list[str]]


class CarriedAnswer(TypedDict):
    """The response to a forwarded request in its wire form, without its body."""

    status: int
    headers: list[list[str]]


def request_of(scope: Scope) -> CarriedRequest:
    """Return the wire form of a request, with the headers that the receiving node needs, and
    without its token.
    """
    asked = [pair for pair in scope["headers"] if pair[0] in _ASKED or pair[0].startswith(_OF_MCP)]
    return {"method": scope["method"], "headers": _texts(asked)}


def scope_of(said: Said) -> Scope:
    """Parse a forwarded request to its ASGI scope. Raises RequestError if it is malformed."""
    method = said.get("method")
    if method not in METHODS:
        raise RequestError("invalid", "no such request is passed on")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": PATH,
        "raw_path": PATH.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": headers_of(said),
        "client": None,
        "server": None,
    }


def answer_of(status: int, headers: Iterable[tuple[bytes, bytes]]) -> CarriedAnswer:
    """Return the wire form of a response, without the headers that concern only this node's HTTP
    connection.
    """
    return {"status": status, "headers": _texts(pair for pair in headers if pair[0].lower() not in _OF_A_CONNECTION)}


def status_of(said: Said) -> int:
    """Parse the status of a forwarded response. Raises RequestError if it is malformed."""
    status = said.get("status")
    if not isinstance(status, int) or isinstance(status, bool) or not 100 <= status <= 599:
        raise RequestError("invalid", "no answer by HTTP")
    return status


def headers_of(said: Said) -> Headers:
    """Parse the headers of a forwarded request or response. Raises RequestError if they are
    malformed.
    """
    try:
        pairs: Any = said["headers"]
        return [(str(name).encode("latin-1"), str(value).encode("latin-1")) for name, value in pairs]
    except (KeyError, TypeError, ValueError):
        raise RequestError("invalid", "no headers of HTTP") from None


def number_of(said: Said) -> int:
    """Parse the number that identifies a forwarded request on its channel. Raises RequestError if
    it is missing.
    """
    number = said.get("number")
    if not isinstance(number, int) or isinstance(number, bool):
        raise RequestError("invalid", "no number of an exchange")
    return number


def _texts(headers: Iterable[tuple[bytes, bytes]]) -> list[list[str]]:
    return [[name.decode("latin-1"), value.decode("latin-1")] for name, value in headers]
