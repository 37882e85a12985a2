"""What an end knows of each stream in use, and what comes out of a channel (PROTOCOL.md 7.2 to 7.6)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.interop.blocking_wire import RuleBrokenError, Tally, Type

STREAM_CREDIT = 1 << 20


class EndedError(Exception):
    """The connection ended; `word` is that of CLOSE, None where it was truncated (7.6)."""

    def __init__(self, word: str | None) -> None:
        super().__init__(f"closed: {word}" if word is not None else "truncated")
        self.word = word


@dataclass(slots=True)
class Event:
    """A whole message: MSG, REQ (also for an OPEN whose body is whole), RES, KEEPALIVE or GOAWAY."""

    type: Type
    stream: int
    data: bytes
    body: bytes | None = None

    @property
    def json(self) -> dict[str, Any]:
        """The payload as 7.2 has it."""
        try:
            value = json.loads(self.data)
            json.dumps(value, ensure_ascii=False).encode()
        except ValueError:
            raise RuleBrokenError("JSON") from None
        if not isinstance(value, dict):
            raise RuleBrokenError("JSON that is no object")
        return value


@dataclass(slots=True)
class Asked:
    """A stream of ours."""

    has_body: bool
    ended: bool = False
    credit: int = STREAM_CREDIT
    tally: Tally = field(default_factory=Tally)


@dataclass(slots=True)
class Given:
    """A stream of the other end."""

    has_body: bool
    request: bytes = b""
    body: bytearray = field(default_factory=bytearray)
    credit: int = STREAM_CREDIT
    consumed: int = 0
    ended: bool = False
    answered: bool = False
    tally: Tally = field(default_factory=Tally)
