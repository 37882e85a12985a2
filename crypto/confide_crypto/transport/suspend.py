"""Noticing that this machine was asleep (PROTOCOL.md 7.7).

A laptop that wakes still has its websocket, but whoever is in between has long forgotten it, and nothing says so: without this the session
would look alive until its idle limit. The same holds for a process that was stopped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

LOOK_S: Final = 2.0
"""How often the clock is looked at: so soon after waking the link begins to come back."""
SLEPT_S: Final = 10.0
"""A wait that takes so much longer was a sleep: more than a busy machine makes of it, less than the 30 s of a forgetful NAT."""

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_clock() -> float:
    """Seconds that go on while the machine sleeps, and that nobody sets.

    `time.monotonic` stands still in a sleep, on Linux and on macOS. The wall clock against it would show the gap too, but also every time
    that somebody sets the clock.
    """
    return time.clock_gettime(_CLOCK)


async def wait_awake(seconds: float, *, clock: Callable[[], float] = boot_clock) -> float:
    """Wait for `seconds`, or until it shows that this machine or process was asleep meanwhile.

    Returns:
        For how many seconds it was; 0 if it was not.
    """
    left_s = seconds
    while left_s > 0:
        piece_s = min(LOOK_S, left_s)
        left_s -= piece_s
        began = clock()
        await asyncio.sleep(piece_s)
        if (late_s := clock() - began - piece_s) > SLEPT_S:
            return late_s
    return 0.0
