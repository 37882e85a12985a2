"""JSON-RPC messages as lines: read with suspicion, written on one line. Standard library only, and little of it."""

from __future__ import annotations

import json
from typing import Any, Final

from confide_proxy.mcp.catalogue import META_OPERATION, META_SAID

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""The channel's own limit for one message (PROTOCOL.md 6.3)."""
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
UNAVAILABLE: Final = -32000


class MalformedError(Exception):
    """A line that is no message.

    Attributes:
        code: JSON-RPC's.
    """

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


def parsed(line: bytes) -> tuple[dict[str, Any], bytes]:
    """The message of a line, and the line without what nobody reads: of two values under one name the first would go up as it is.

    Raises:
        MalformedError: it is no message.
    """
    if len(line) > MAX_LINE_BYTES:
        raise MalformedError(INVALID_REQUEST, f"the message is larger than {MAX_LINE_BYTES // 2**20} MiB")
    is_doubled = False
    try:
        try:
            message = json.loads(line, object_pairs_hook=_once)
        except _TwiceError:
            message, is_doubled = json.loads(line), True
    except (ValueError, RecursionError):
        raise MalformedError(PARSE_ERROR, "the line is not JSON") from None
    if (
        not isinstance(message, dict)
        or message.get("jsonrpc") != "2.0"
        or not isinstance(message.get("method", ""), str)
    ):
        raise MalformedError(INVALID_REQUEST, "the line is not a JSON-RPC 2.0 message")
    if not isinstance(message.get("id"), str | int | None) or isinstance(message.get("id"), bool):
        raise MalformedError(INVALID_REQUEST, "the id is neither a string nor a number")
    return message, encoded(message) if is_doubled else line


def encoded(message: dict[str, Any]) -> bytes:
    """The message on one line, without the line's end."""
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "backslashreplace")


def key(identifier: Any) -> str:
    """An id as a key: 1 and "1" are different ids in JSON-RPC."""
    return json.dumps(identifier)


def with_operation(message: dict[str, Any]) -> dict[str, Any]:
    """A tool call with an id of its own, and the time at which it was made (PROTOCOL.md 7.12); the client's own are not taken."""
    # Imported late: only a session that stores something needs them.
    import secrets
    from datetime import datetime

    said = datetime.now().astimezone().isoformat(timespec="seconds")
    params = message["params"]
    given = params.get("_meta")
    meta = {**(given if isinstance(given, dict) else {}), META_OPERATION: secrets.token_hex(16), META_SAID: said}
    return {**message, "params": {**params, "_meta": meta}}


class _TwiceError(ValueError):
    """A name stands twice in an object."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _TwiceError
    return found
