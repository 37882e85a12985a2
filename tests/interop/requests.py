"""The JSON in REQ, OPEN and RES: PROTOCOL.md 7.2."""

from __future__ import annotations

import json
from typing import Any

from tests.interop.frames import BrokenError


class RefusedError(Exception):
    """A RES with `error`."""

    def __init__(self, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.hint = code, message, hint


def parse(payload: bytes) -> dict[str, Any]:
    """A JSON object without lone surrogates. Raises BrokenError."""
    try:
        value = json.loads(payload)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise BrokenError("JSON") from None
    if not isinstance(value, dict):
        raise BrokenError("JSON that is no object")
    return value


def read_request(raw: bytes) -> tuple[str, dict[str, Any]]:
    """The op and the parameters of a REQ or OPEN. Raises BrokenError."""
    request = parse(raw)
    op = request.pop("op", None)
    if not isinstance(op, str):
        raise BrokenError("a request without op")
    return op, request


def read_answer(raw: bytes) -> dict[str, Any]:
    """What a RES says. Raises RefusedError, and BrokenError if it has neither form."""
    match parse(raw):
        case {"ok": dict() as result, **others} if not others:
            return result
        case {"error": {"code": str(code), "message": str(text)} as error, **others} if not others:
            raise RefusedError(code, text, error.get("hint"))
    raise BrokenError("form of an answer")
