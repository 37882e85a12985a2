"""Strangers get their part of a loop that others wait for: requests in turn of whoever brings them, and what trickles a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from tests.support.deadline import DEADLINE_S

from confide_http.door.pacing import WOKEN, RequestTurns, Rests


class Begun(list[str]):
    """What has begun, in order."""

    def __init__(self) -> None:
        super().__init__()
        self._news = asyncio.Event()

    def note(self, name: str) -> None:
        self.append(name)
        self._news.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while len(self) < count:
                self._news.clear()
                await self._news.wait()


async def test_few_begin_in_a_row_and_all_others_later() -> None:
    loop = asyncio.get_running_loop()
    begun, turns = Begun(), RequestTurns(per_second=20, in_a_row=4)
    since = loop.time()
    for number in range(7):
        turns.wait("one", partial(begun.note, str(number)))
    assert begun == ["0"]
    await begun.until(7)
    assert begun == [str(number) for number in range(7)]
    assert loop.time() - since > 2.9 / 20


async def test_those_in_a_row_have_turns_of_the_loop_of_their_own() -> None:
    """Thirty-two requests of a stranger in one turn were 10 ms, which all others waited."""
    loop = asyncio.get_running_loop()
    begun, turns, in_one_turn = Begun(), RequestTurns(per_second=1, in_a_row=8), [0]

    def count() -> None:
        in_one_turn.append(len(begun) - sum(in_one_turn))
        if len(begun) < 8:
            loop.call_soon(count)

    loop.call_soon(count)
    for number in range(8):
        turns.wait("one", partial(begun.note, str(number)))
    await begun.until(8)
    count()
    assert max(in_one_turn) == 1


async def test_nobody_waits_for_all_that_another_brings() -> None:
    begun, turns = Begun(), RequestTurns(per_second=500, in_a_row=1)
    for number in range(100):
        turns.wait("flood", partial(begun.note, f"flood {number}"))
    turns.wait("friend", partial(begun.note, "friend"))
    await begun.until(4)
    assert "friend" in begun[:3]


async def test_who_has_left_takes_no_turn() -> None:
    begun, turns = Begun(), RequestTurns(per_second=500, in_a_row=1)
    names = [partial(begun.note, name) for name in ("first", "gone", "last")]
    for each in names:
        turns.wait("one", each)
    turns.leave("one", names[1])
    turns.leave("nobody", names[1])
    await begun.until(2)
    assert begun == ["first", "last"]


async def test_few_of_those_that_rest_are_looked_at_in_one_turn() -> None:
    """Five hundred bytes of as many connections kept the loop for 12 ms."""
    rests, loop = Rests(0.01), asyncio.get_running_loop()
    begun, in_one_turn = Begun(), 0

    def looked() -> None:
        nonlocal in_one_turn
        in_one_turn = len(begun)

    def first() -> None:
        begun.note("first")
        loop.call_soon(looked)  # before whatever comes later

    resumed: list[Callable[[], None]] = [first, *(partial(begun.note, str(number)) for number in range(3 * WOKEN))]
    for each in resumed:
        rests.rest(each)
    rests.leave(resumed[-1])
    await begun.until(3 * WOKEN)
    assert in_one_turn == WOKEN
    assert begun == ["first", *(str(number) for number in range(3 * WOKEN - 1))]
