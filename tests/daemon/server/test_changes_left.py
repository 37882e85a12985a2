"""How many changes one connection may leave under way, by calls that run into their deadline."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from confide_crypto.errors import RequestError
from confide_daemon.server import session
from confide_daemon.server.session import Session


async def test_a_connection_leaves_so_many_changes_under_way_and_no_more() -> None:
    """Beyond, none is begun, until one of them has ended; and one that somebody waits for counts for nothing."""
    one = Session.__new__(Session)
    one._under = session.UnderWay()
    one.hold = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    ends = asyncio.Event()
    begun = 0

    async def change() -> int:
        nonlocal begun
        begun += 1
        await ends.wait()
        return begun

    waiting = [asyncio.create_task(one._run_to_end(change())) for _ in range(session.MAX_LEFT + 8)]
    await asyncio.sleep(0)
    for _ in range(session.MAX_LEFT):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await one._run_to_end(change())
    await asyncio.sleep(0)
    with pytest.raises(RequestError, match="under way still"):
        await one._run_to_end(change())
    assert begun == len(waiting) + session.MAX_LEFT
    ends.set()
    assert await asyncio.gather(*waiting)
    await asyncio.gather(*one._under.orphans)
    await asyncio.sleep(0)
    assert await one._run_to_end(change()) == begun
