"""A task group raises what explains the others, and no error hides that its owner was cancelled, whenever the two meet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import product

import pytest

from confide_crypto.errors import ConnectionLost
from confide_crypto.transport.task_group import TaskGroup, raise_if_cancelled

TURNS = 14
"""Of the loop: more than any of the works below takes for one round."""


async def steps(breaks_at: int) -> None:
    """One of the works that run together: it loses its connection at the n-th step."""
    for _ in range(breaks_at):
        await asyncio.sleep(0)
    raise ConnectionLost(truncated=True)


async def clumsy(breaks_at: int) -> None:
    """The same for one that is cancelled: what it does at its end fails as well."""
    try:
        await steps(breaks_at)
    finally:
        await asyncio.sleep(0)
        raise ConnectionLost(truncated=True)


async def grouped(breaks_at: int) -> None:
    async with TaskGroup() as group:
        for late in (0, 1, 20):
            group.create_task(steps(breaks_at + late))


async def in_the_block(breaks_at: int) -> None:
    async with TaskGroup() as group:
        group.create_task(steps(breaks_at))
        group.create_task(clumsy(breaks_at + 1))
        await asyncio.sleep(3600)


async def nested(breaks_at: int) -> None:
    async with asyncio.timeout(3600), TaskGroup() as group:
        group.create_task(grouped(breaks_at))
        await grouped(breaks_at + 1)


async def gathered(breaks_at: int) -> None:
    await asyncio.gather(steps(breaks_at), clumsy(breaks_at + 2))


async def awaited(breaks_at: int) -> None:
    await asyncio.create_task(clumsy(breaks_at))


async def survivor(work: Callable[[int], Awaitable[None]], breaks_at: int) -> None:
    """What a link, a streamer or a nightly round is: it takes an error for the end of one round, and begins another."""
    while True:
        try:
            await work(breaks_at)
        except ConnectionLost:
            raise_if_cancelled()
        await asyncio.sleep(0)


@pytest.mark.parametrize("work", [grouped, in_the_block, nested, gathered, awaited])
async def test_whoever_is_cancelled_ends_whatever_breaks_at_that_moment(work: Callable[[int], Awaitable[None]]) -> None:
    """The connection breaks at the n-th step, the cancellation comes at the m-th turn of the loop: for all n and m the task ends."""
    for breaks_at, turns in product(range(5), range(TURNS)):
        task = asyncio.create_task(survivor(work, breaks_at))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=10)
        assert task.cancelled(), f"break at step {breaks_at}, cancelled at turn {turns}"


@pytest.mark.parametrize("work", [grouped, in_the_block, nested])
async def test_a_cancellation_needs_nobody_who_asks_for_it(work: Callable[[int], Awaitable[None]]) -> None:
    """Also where whoever meets the error knows nothing of it: the group itself raises the cancellation."""
    for breaks_at, turns in product(range(5), range(1, TURNS)):
        ended_by: list[type[BaseException]] = []

        async def owner(breaks_at: int = breaks_at, ended_by: list[type[BaseException]] = ended_by) -> None:
            try:
                await work(breaks_at)
            except BaseException as error:
                ended_by.append(type(error))

        task = asyncio.create_task(owner())
        for _ in range(turns):
            await asyncio.sleep(0)
        is_over = task.done()
        task.cancel()
        await asyncio.wait([task], timeout=10)
        assert ended_by == [ConnectionLost if is_over else asyncio.CancelledError]


@pytest.mark.parametrize("work", [grouped, in_the_block, nested])
async def test_a_failure_is_no_cancellation(work: Callable[[int], Awaitable[None]]) -> None:
    """After a group has failed its owner does not count as cancelled: it may go on, and be cancelled later."""
    with pytest.raises(ConnectionLost):
        await work(1)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    raise_if_cancelled()
    async with asyncio.timeout(5):
        await asyncio.sleep(0)


async def within(seconds: float) -> None:
    async with asyncio.timeout(seconds), TaskGroup() as group:
        group.create_task(clumsy(10**9))
        await asyncio.sleep(3600)


async def test_a_deadline_around_a_group_is_a_timeout() -> None:
    with pytest.raises(TimeoutError):
        await within(0.01)
    raise_if_cancelled()


async def test_what_explains_the_others_is_raised_as_it_is() -> None:
    """A fault of ours is not hidden behind the connection that broke by it, nor in the group of a library."""

    async def library() -> None:
        raise ExceptionGroup("of a library", [ConnectionLost(truncated=True), ExceptionGroup("inner", [KeyError("x")])])

    async def of_a_task() -> None:
        async with TaskGroup() as group:
            group.create_task(clumsy(0))
            group.create_task(library())
            await asyncio.sleep(3600)

    async def of_the_block() -> None:
        async with TaskGroup() as group:
            group.create_task(clumsy(5))
            await asyncio.sleep(0)
            raise ZeroDivisionError

    async def at_its_end() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            raise KeyError("as it was cancelled")

    async def of_the_line() -> None:
        async with TaskGroup() as group:
            group.create_task(at_its_end())
            await steps(2)

    with pytest.raises(ConnectionLost):
        await of_the_line()
    with pytest.raises(KeyError):
        await of_a_task()
    with pytest.raises(ZeroDivisionError):
        await of_the_block()


async def test_the_exit_waits_for_all_however_often_it_is_cancelled() -> None:
    """Nothing of a group runs on behind it."""
    goes_on, has_ended = asyncio.Event(), False

    async def slow() -> None:
        nonlocal has_ended
        try:
            await asyncio.sleep(3600)
        finally:
            await goes_on.wait()
            has_ended = True

    async def owner() -> None:
        async with TaskGroup() as group:
            group.create_task(slow())

    task = asyncio.create_task(owner())
    for _ in range(3):
        await asyncio.sleep(0)
    for _ in range(3):
        task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not task.done()
    goes_on.set()
    await asyncio.wait([task], timeout=10)
    assert task.cancelled()
    assert has_ended


async def test_a_group_that_is_ending_takes_nothing_more() -> None:
    async with TaskGroup() as group:
        task = group.create_task(asyncio.sleep(0, "of the task"))
    assert task.result() == "of the task"
    with pytest.raises(RuntimeError):
        group.create_task(asyncio.sleep(0))


async def test_a_group_that_fails_takes_nothing_more() -> None:
    refused: list[RuntimeError] = []

    async def owner() -> None:
        async with TaskGroup() as failing:
            failing.create_task(steps(0))
            try:
                await asyncio.sleep(3600)
            finally:
                try:
                    failing.create_task(asyncio.sleep(0))
                except RuntimeError as error:
                    refused.append(error)

    with pytest.raises(ConnectionLost):
        await owner()
    assert len(refused) == 1
