"""Limits of requests: body size, time to send it, and parallel requests of a kind."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive

from confide_http.door.refusals import RefusalError

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
"""As in the MCP SDK's servers; a note has at most a million characters."""
BODY_S: Final = 15.0
"""Time limit for a body, however slowly it comes. On loopback the largest takes milliseconds."""
MAX_STREAMS_EACH: Final = 16


async def body_of(request: Request, *, within_s: float = BODY_S, most: int = MAX_BODY_BYTES) -> bytes:
    """Return the whole body. Raises RefusalError: 413 if it exceeds `most` bytes, 408 if it takes
    longer than `within_s`.
    """
    said = request.headers.get("content-length", "0")
    if not said.isdecimal() or len(said) > 12 or int(said) > most:
        raise _too_large(most)
    found = bytearray()
    try:
        async with asyncio.timeout(within_s):
            async for part in request.stream():
                found += part
                if len(found) > most:
                    raise _too_large(most)
    except TimeoutError:
        raise RefusalError(
            408, "invalid", f"the body took longer than {within_s:g} s", headers={"Connection": "close"}
        ) from None
    except ClientDisconnect:
        raise RefusalError(400, "invalid", "the client left before its request was whole") from None
    return bytes(found)


def _too_large(most: int) -> RefusalError:
    size = f"{most // 2**20} MiB" if most >= 2**20 else f"{most // 2**10} KiB"
    return RefusalError(413, "too_large", f"the body is over {size}", headers={"Connection": "close"})


def replay_body(body: bytes, receive: Receive) -> Receive:
    """Return an ASGI `receive` function that yields a body that was already read, and then passes
    calls on to `receive`.
    """
    is_given = False

    async def receive_again() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


class Places:
    """Limits the number of long requests that run at the same time, in total and per client."""

    def __init__(self, what: str, *, most: int, each: int) -> None:
        self._what, self._most, self._each = what, most, each
        self._uses: Counter[Hashable] = Counter()

    @property
    def uses(self) -> int:
        return self._uses.total()

    @contextmanager
    def place(self, key: Hashable) -> Iterator[None]:
        """Count one running request of the client `key` within the context. Raises RefusalError
        with status 429 if the client or the server has reached its limit.
        """
        if self._uses[key] >= self._each or self._uses.total() >= self._most:
            raise RefusalError(429, "busy", f"there are too many {self._what} at a time")
        self._uses[key] += 1
        try:
            yield
        finally:
            self._uses[key] -= 1
            if not self._uses[key]:
                del self._uses[key]
