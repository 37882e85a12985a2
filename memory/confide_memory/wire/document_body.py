"""Documents in `put` and `apply`: a short text travels as a parameter, a longer one as the body of a stream (PROTOCOL.md 9)."""

from __future__ import annotations

from typing import Any, Final, Protocol

from confide_crypto.channel.body import Body
from confide_crypto.errors import RequestError

INLINE_BYTES: Final = 8 * 1024
"""Up to here one record is cheaper than the three of a stream."""
MAX_TEXT_BYTES: Final = 4 * 1024 * 1024


class Asks(Protocol):
    """A connection, or a link that has one."""

    async def request(self, op: str, body: dict[str, Any], *, timeout_s: float, bulk: bool = False) -> dict[str, Any]:
        """As `Connection.request`."""

    async def upload(self, op: str, body: dict[str, Any], data: bytes, *, timeout_s: float) -> dict[str, Any]:
        """As `Connection.upload`."""


async def send_text(link: Asks, op: str, body: dict[str, Any], text: str, *, timeout_s: float) -> dict[str, Any]:
    """Ask with a text, behind everything interactive.

    Raises:
        RequestError, ConnectionLost, TimeoutError: as `Connection.upload`.
    """
    data = text.encode()
    if len(data) > INLINE_BYTES:
        return await link.upload(op, body, data, timeout_s=timeout_s)
    return await link.request(op, {**body, "text": text}, timeout_s=timeout_s, bulk=True)


async def receive_text(body: Body) -> str:
    """The text that came as a body.

    Raises:
        RequestError: `too_large`, `invalid` where it is not UTF-8, or as `Body.read`.
        ConnectionLost: the connection ended first.
    """
    try:
        return (await body.read(MAX_TEXT_BYTES)).decode()
    except UnicodeDecodeError:
        raise RequestError("invalid", "the text is not UTF-8") from None
