"""How much a request may bring, and how long it may take to: bodies that come slowly, or without an end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.requests import Request

from confide_http.door import request_limits
from confide_http.door.refusals import RefusalError
from confide_http.door.request_limits import Places


def request(*parts: bytes, headers: tuple[tuple[bytes, bytes], ...] = (), pause_s: float = 0.0) -> Request:
    left = [*parts]

    async def receive() -> Any:
        await asyncio.sleep(pause_s)
        part = left.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(left)}

    return Request({"type": "http", "method": "POST", "headers": [*headers]}, receive)


async def test_a_whole_body_is_read() -> None:
    assert await request_limits.body_of(request(b"ab", b"", b"cd"), within_s=9) == b"abcd"


@pytest.mark.parametrize("said", [b"5", b"99999999999999", b"-1", b"0x1", b"\xc2\xb2", b""])
async def test_a_length_that_is_too_large_or_none_is_refused_before_anything_is_read(said: bytes) -> None:
    asked = request(headers=((b"content-length", said),))
    with pytest.raises(RefusalError) as refused:
        await request_limits.body_of(asked, within_s=9, most=4)
    assert refused.value.status == 413


async def test_a_body_without_an_end_is_refused_where_it_is_too_large() -> None:
    with pytest.raises(RefusalError) as refused:
        await request_limits.body_of(request(*[b"x" * 1024] * 9), within_s=9, most=8192)
    assert refused.value.status == 413


async def test_a_body_that_comes_too_slowly_is_refused() -> None:
    """By all of its time, not by that of each part: a byte now and then would never end."""
    with pytest.raises(RefusalError) as refused:
        await request_limits.body_of(request(*[b"x"] * 1000, pause_s=0.01), within_s=0.1)
    assert refused.value.status == 408


def test_places_are_given_back() -> None:
    """And nobody takes all of them."""
    places = Places("streams", most=3, each=2)
    with places.place("ann"), places.place("ann"):
        with pytest.raises(RefusalError) as refused, places.place("ann"):
            pass
        assert (refused.value.status, refused.value.headers["Retry-After"]) == (429, "2")
        with places.place("bob"), pytest.raises(RefusalError), places.place("bob"):
            pass
    assert places.uses == 0
