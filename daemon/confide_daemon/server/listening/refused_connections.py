"""Connections that became no session: counted, and told to the log once a minute.

A flood is never written down line by line: whoever can open a connection must not be able to fill the disk.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from confide_crypto.errors import BusyError, ConfideError, DeniedError, HandshakeError

log = logging.getLogger(__name__)

REPORT_EVERY_S: Final = 60.0
DENIALS_LOGGED: Final = 10
"""Lines about proven keys that may not come in, in a minute: the operator who enrolls somebody needs to see them."""
FAILURES_LOGGED: Final = 10
"""Lines about failures of our own, in a minute: strangers can bring them about where the registry cannot be read."""


class Refusals:
    """Counts what was refused, and tells the log once a minute."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: Counter[str] = Counter()
        self._since = clock()
        self._denials = self._failures = 0

    def count(self, kind: str) -> None:
        """One more of this kind; `kind` is ours, never a peer's word."""
        self._counts[kind] += 1

    def note(self, error: Exception) -> None:
        """A handshake that failed, a proven key that may not come in, or a failure of our own: why a connection became no session."""
        if isinstance(error, HandshakeError | TimeoutError):
            self.count("while others were under way" if isinstance(error, BusyError) else "failed")
        elif isinstance(error, DeniedError):
            self._denials += 1
            if self._denials <= DENIALS_LOGGED:
                log.info("denied %s: %s", error.fingerprint, error.reason)
            else:
                self.count("denied")
        else:
            self._failures += 1
            if self._failures <= FAILURES_LOGGED:
                # A bug only by its class: its text may quote anything.
                why = error if isinstance(error, ConfideError) else type(error).__name__
                log.error("a connection was given up by a failure here: %s", why)
            else:
                self.count("by a failure here")

    def report(self, *, is_last: bool = False) -> None:
        """Write the counts down, if a minute has passed since the last time or the daemon ends."""
        now = self._clock()
        if now - self._since < REPORT_EVERY_S and not is_last:
            return
        if self._counts:
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self._counts.items()))
            log.warning("refused %s handshakes in %.0f s: %s", f"{self._counts.total():,}", now - self._since, kinds)
        self._counts.clear()
        self._denials = self._failures = 0
        self._since = now


def result_of(error: Exception) -> str:
    """What has become of a handshake that failed, as the figures call it."""
    if isinstance(error, HandshakeError | TimeoutError):
        return "busy" if isinstance(error, BusyError) else "failed"
    return "denied" if isinstance(error, DeniedError) else "internal"
