"""How much there is of what the tokens of this machine share, and how long a body may take."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from confide_http.door import limits
from confide_http.door.limits import MAX_BODY_BYTES

BODY_S: Final = 15.0
"""Within which a body has come, however slowly. On loopback the largest takes milliseconds."""
MAX_STREAMS: Final = 64
MAX_CALLS_EACH: Final = 32
"""Requests of one identity that wait at a time: no token keeps the others from the tunnel, which has room for 256."""
MAX_CONNECTIONS: Final = 256


async def body_of(request: Request, *, most: int = MAX_BODY_BYTES) -> bytes:
    """The whole body. Raises RefusalError: 413 where it is larger than `most` bytes, 408 where it takes longer than `BODY_S`."""
    return await limits.body_of(request, within_s=BODY_S, most=most)
