"""When a model that keeps failing is left alone: a circuit breaker (Nygard, Release It!), one for each configured model.

Closed, every call goes through. After some failures in a row it opens: calls are refused at once, without asking. After a pause that
grows with every opening, one call is let through to probe; its success closes the breaker, its failure opens it for longer.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from confide_daemon.errors import EmbedderError, ProviderDownError, QuotaError

if TYPE_CHECKING:
    from collections.abc import Iterator

# One lost connection is no outage; three in a row, each after its retries, are.
FAILURES = 3
FIRST_PAUSE_S = 5.0
MAX_PAUSE_S = 300.0
# What only a person can mend is looked at again this seldom, so that a quota that was raised is noticed without a restart.
QUOTA_PAUSE_S = 900.0
# A provider may ask for a pause, but not for a day.
MAX_ASKED_PAUSE_S = 3600.0
# A probe that never says how it went (its thread died) does not keep the breaker half open for ever.
PROBE_S = 180.0


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True, slots=True)
class BreakerStatus:
    state: BreakerState
    failures: int  # in a row, up to now
    retry_in_s: float  # until the next call is let through; 0 when it would be now
    reason: EmbedderError | None  # the last error, None after a success


class CircuitBreaker:
    """Counts what happens to the calls of one model, as errors name it; from any thread. `clock`: seconds that only go forward."""

    def __init__(
        self,
        name: str,
        *,
        failures: int = FAILURES,
        first_pause_s: float = FIRST_PAUSE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._limit = failures
        self._first_pause_s = first_pause_s
        self._clock = clock
        self._lock = threading.Lock()
        self._state = BreakerState.CLOSED
        self._failures = 0
        self._openings = 0
        self._until = 0.0
        self._reason: EmbedderError | None = None

    @property
    def status(self) -> BreakerStatus:
        with self._lock:
            waits = 0.0 if self._state is BreakerState.CLOSED else max(0.0, self._until - self._clock())
            return BreakerStatus(self._state, self._failures, waits, self._reason)

    @contextmanager
    def call(self) -> Iterator[None]:
        """Around one call: refused while open, and its end is counted. Only an `EmbedderError` is a failure of the model.

        Raises ProviderDownError: it is open; `retry_after_s` says for how long; QuotaError: it is open because somebody has to act.
        """
        self.admit()
        with self.watch():
            yield

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Around a call that was admitted before: how it ends is counted."""
        try:
            yield
        except EmbedderError as error:
            self.failed(error)
            raise
        except BaseException:
            self.gave_up()
            raise
        self.succeeded()

    def admit(self) -> None:
        """Takes leave for one call; `watch` has to follow, or `succeeded`, `failed` or `gave_up`. Raises as `call`."""
        with self._lock:
            now = self._clock()
            if self._state is BreakerState.CLOSED:
                return
            if now >= self._until:
                # Open: the pause is over, so this call probes. Half open: the probe before never came back.
                self._state = BreakerState.HALF_OPEN
                self._until = now + PROBE_S
                return
            raise self._refusal(self._until - now)

    def succeeded(self) -> None:
        """The call went well, or somebody has acted: nothing is held against it."""
        with self._lock:
            self._state = BreakerState.CLOSED
            self._failures = self._openings = 0
            self._until = 0.0  # a probe had set it far ahead, and the next pause begins from what it finds here
            self._reason = None

    def failed(self, error: EmbedderError) -> None:
        """The call failed. A quota or a pause the provider asked for opens at once; else it takes several failures in a row."""
        with self._lock:
            self._failures += 1
            self._reason = error
            asked = error.retry_after_s if isinstance(error, ProviderDownError) else None
            must_act = isinstance(error, QuotaError)
            is_probe = self._state is BreakerState.HALF_OPEN
            # Calls that were under way when it opened say nothing new, and must not make the pause longer.
            if self._state is BreakerState.OPEN and not must_act and asked is None:
                return
            if not (must_act or asked is not None or is_probe or self._failures >= self._limit):
                return
            pause = min(self._first_pause_s * 2**self._openings, MAX_PAUSE_S)
            # Jitter, so that the daemons that failed together do not come back together.
            pause = max(pause * random.uniform(0.8, 1.2), min(asked or 0.0, MAX_ASKED_PAUSE_S))  # noqa: S311
            if must_act:
                pause = QUOTA_PAUSE_S
            if self._state is not BreakerState.OPEN:
                self._openings += 1
            self._state = BreakerState.OPEN
            self._until = max(self._until, self._clock() + pause) if not is_probe else self._clock() + pause

    def gave_up(self) -> None:
        """The call ended without telling anything about the model."""
        with self._lock:
            if self._state is BreakerState.HALF_OPEN:
                self._state = BreakerState.OPEN
                self._until = self._clock()

    def _refusal(self, waits_s: float) -> EmbedderError:
        if isinstance(self._reason, QuotaError):
            return QuotaError(self._reason.message, hint=self._reason.hint)
        why = f": {self._reason}" if self._reason is not None else ""
        return ProviderDownError(
            f"{self.name} is left alone for another {waits_s:.0f} s{why}",
            hint=self._reason.hint if self._reason is not None else None,
            retry_after_s=waits_s,
        )
