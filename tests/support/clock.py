"""A clock for whatever takes one, and what a promise in seconds comes to on a machine that is busy."""

from __future__ import annotations

import os


class Clock:
    """Seconds that pass when told to."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def promised(seconds: float) -> float:
    """How long it may take here to do what takes at most so many seconds on a machine that has nothing else to do.

    The tests themselves keep the processors busy, and others may; the exact promises are measured by `python -m bench`.
    """
    waiting = os.getloadavg()[0] / (os.cpu_count() or 1)
    return seconds * (0.5 + max(1.0, waiting))
