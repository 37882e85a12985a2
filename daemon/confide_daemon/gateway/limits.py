"""How much one request may bring, how long it may take to, and how many there are at a time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from starlette.requests import ClientDisconnect, Request

from confide_daemon.gateway.refusals import RefusalError

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
"""As the SDK's servers take; a note has a million characters at most."""
BODY_S: Final = 30.0
"""Within which a body has come, however slowly."""
MAX_STREAMS: Final = 256
MAX_STREAMS_EACH: Final = 16
MAX_REQUESTS: Final = 128
MAX_REQUESTS_EACH: Final = 32
"""Of one client, as of one connection of a machine: no token keeps the others from the threads that search."""
MAX_SESSIONS_EACH: Final = 16
"""Of the older era; each has a task of its own."""
MAX_CONNECTIONS: Final = 512


async def body_of(request: Request) -> bytes:
    """The whole body. Raises RefusalError: 413 where it is larger than `MAX_BODY_BYTES`, 408 where it takes too long."""
    said = request.headers.get("content-length", "0")
    if not said.isdecimal() or len(said) > 12 or int(said) > MAX_BODY_BYTES:
        raise _too_large()
    found = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                found += part
                if len(found) > MAX_BODY_BYTES:
                    raise _too_large()
    except TimeoutError:
        raise RefusalError(
            408, "invalid", f"the body took longer than {BODY_S:g} s", headers={"Connection": "close"}
        ) from None
    except ClientDisconnect:
        raise RefusalError(400, "invalid", "the client left before its request was whole") from None
    return bytes(found)


def _too_large() -> RefusalError:
    said = f"the body is over {MAX_BODY_BYTES // 2**20} MiB"
    return RefusalError(413, "too_large", said, headers={"Connection": "close"})


class Places:
    """Room for what takes long, in all and for each client."""

    def __init__(self, what: str, *, most: int, each: int) -> None:
        self._what, self._most, self._each = what, most, each
        self._taken: Counter[bytes] = Counter()

    @contextmanager
    def place(self, digest: bytes) -> Iterator[None]:
        """One place while this lasts. Raises RefusalError, 429: there is none."""
        if self._taken[digest] >= self._each or self._taken.total() >= self._most:
            raise RefusalError(429, "busy", f"there are too many {self._what} at a time")
        self._taken[digest] += 1
        try:
            yield
        finally:
            self._taken[digest] -= 1
            if not self._taken[digest]:
                del self._taken[digest]
