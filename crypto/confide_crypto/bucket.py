"""A token bucket: so many a second, and some at once."""

from __future__ import annotations

import time
from collections.abc import Callable


class TokenBucket:
    """Begins full. Tokens below zero are waits that have been promised."""

    def __init__(self, per_second: float, burst: float, *, clock: Callable[[], float] | None = None) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._tokens = burst
        self._refilled = self._now()

    @property
    def is_full(self) -> bool:
        """Whether nothing of it is used: a new one would be the same."""
        self._refill()
        return self._tokens >= self._burst

    def take(self) -> bool:
        """Take a token that is there; False if there is none."""
        return self.borrow(0.0) is not None

    def borrow(self, longest_s: float) -> float | None:
        """Take a token and say how many seconds to wait before using it; None, and no token, if that is over `longest_s`."""
        self._refill()
        wait_s = max(0.0, (1.0 - self._tokens) / self._per_second)
        if wait_s > longest_s:
            return None
        self._tokens -= 1.0
        return wait_s

    def _refill(self) -> None:
        now = self._now()
        self._tokens = min(self._burst, self._tokens + (now - self._refilled) * self._per_second)
        self._refilled = now

    def _now(self) -> float:
        return self._clock() if self._clock else time.monotonic()
