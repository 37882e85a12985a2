"""How the work for a text grows with its length: a bound that holds on any machine, fast or slow, idle or busy."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

EIGHTH: Final = 8
NEARLY_LINEAR: Final = 24.0
"""Eight times the length costs eight times as much where all is read once, and 64 times where each part is compared with all others."""
LEAST_S: Final = 0.002
"""What is shorter is mostly chance, and counts as this."""


def growth(work: Callable[[int], object], size: int) -> float:
    """How many times the processor time of an eighth of `size` the whole costs, from the best of a few tries."""
    small = min(_cost(work, size // EIGHTH) for _ in range(3))
    large = _cost(work, size)
    if large >= NEARLY_LINEAR * small:
        large = min(large, _cost(work, size))
    return large / max(small, LEAST_S)


def ratio(work: Callable[[int], object], ordinary: Callable[[int], object], size: int) -> float:
    """How many times the processor time of what is `ordinary` the work costs at `size`, from the best of a few tries of each."""
    costs = [(_cost(work, size), _cost(ordinary, size)) for _ in range(3)]
    return min(cost for cost, _ in costs) / max(min(cost for _, cost in costs), LEAST_S)


def _cost(work: Callable[[int], object], size: int) -> float:
    began = time.thread_time()
    work(size)
    return time.thread_time() - began
