"""A body as its receiver holds it: what its credit says, and not more (PROTOCOL.md 7.5)."""

from __future__ import annotations

import tracemalloc

import pytest

from confide_crypto.errors import RequestError
from confide_crypto.limits import STREAM_CREDIT
from confide_crypto.transport.inbox import Body


@pytest.mark.long
def test_tiny_pieces_weigh_no_more_than_their_credit() -> None:
    """A hostile sender's DATA of two bytes each: as objects of their own they would fill twenty times the memory."""
    body = Body(lambda _: None)
    tracemalloc.start()
    try:
        for number in range(STREAM_CREDIT // 4):
            body.feed(number.to_bytes(4, "big"))
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 1.2 * STREAM_CREDIT


async def test_joined_pieces_come_out_whole_and_in_order() -> None:
    taken: list[int] = []
    body = Body(taken.append)
    pieces = [bytes([number % 256]) * (number * 37 % 9000 + 1) for number in range(60)]
    for piece in pieces:
        body.feed(piece)
    body.complete()
    assert await body.read(10**6) == b"".join(pieces)
    assert sum(taken) == sum(map(len, pieces))


async def test_what_nobody_wants_is_credited_at_once() -> None:
    taken: list[int] = []
    body = Body(taken.append)
    body.feed(b"held")
    body.discard()
    body.feed(b"late")
    assert taken == [4, 4]


async def test_a_body_that_failed_gives_none_of_what_had_come() -> None:
    body = Body(lambda _: None)
    body.feed(b"half")
    body.fail(RequestError("cancelled", "it was given up"))
    with pytest.raises(RequestError, match="given up"):
        await body.read(10)
