"""Documents between the two ends (PROTOCOL.md 9): their texts in `put` and `apply`, and what a folder holds, in a few kilobytes (`digest`).

A short text travels as a parameter, a longer one as the body of a stream. Ten thousand files that are the same at both ends are found to be
so with one short request, by digests of their states; where some differ, only their buckets are compared file by file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

from confide_crypto.errors import RequestError

if TYPE_CHECKING:
    from confide_crypto.transport.inbox import Body

BUCKETS: Final = 256
_DIGEST_BYTES: Final = 16
INLINE_BYTES: Final = 8 * 1024
"""Up to here one record is cheaper than the three of a stream."""
MAX_TEXT_BYTES: Final = 4 * 1024 * 1024


def text_hash(text: str) -> str:
    """BLAKE2b-256 of the UTF-8 bytes, in hex: the name of a content on the wire."""
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


def bucket_of(path: str) -> int:
    """Which bucket a path belongs to: the first byte of the BLAKE2b-256 of its UTF-8 bytes."""
    return hashlib.blake2b(path.encode("utf-8", "surrogateescape"), digest_size=32).digest()[0]


def digests(states: Iterable[tuple[str, str, int]]) -> list[str]:
    """For each bucket the hex BLAKE2b-128 of `path 0x00 hash 0x00 revision 0x0a`, in order of the paths' bytes; "" for an empty one.

    Args:
        states: (path, hash, revision) of each file.
    """
    lines: list[list[bytes]] = [[] for _ in range(BUCKETS)]
    for path, digest, revision in states:
        lines[bucket_of(path)].append(f"{path}\0{digest}\0{revision}\n".encode("utf-8", "surrogateescape"))
    return [
        hashlib.blake2b(b"".join(sorted(each)), digest_size=_DIGEST_BYTES).hexdigest() if each else "" for each in lines
    ]


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
