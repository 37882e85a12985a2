"""Counts of connections that never became a session, logged once a minute.

They are not logged line by line: any peer that can connect could fill the disk.
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
"""Lines a minute about authenticated keys that were refused, which an operator who enrolls a device
needs to see.
"""
FAILURES_LOGGED: Final = 10
"""Lines a minute about internal failures, which any peer can cause while the registry is
unreadable.
"""


class Refusals:
    """Counts refused connections by kind, and logs the counts once a minute."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: Counter[str] = Counter()
        self._since = clock()
        self._denials = self._failures = 0

    def count(self, kind: str) -> None:
        """Count a refusal. `kind`: a fixed text of the daemon, never text from a peer."""
        self._counts[kind] += 1

    def note(self, error: Exception) -> None:
        """Count or log the error for which a connection did not become a session: a failed
        handshake, a denied key or an internal failure.
        """
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
                # A bug is logged by its class only, since its text may quote anything.
                why = error if isinstance(error, ConfideError) else type(error).__name__
                log.error("a connection was given up by a failure here: %s", why)
            else:
                self.count("by a failure here")

    def report(self, *, is_last: bool = False) -> None:
        """Log the counts if a minute has passed since the last report. `is_last`: True to log them
        now, because the daemon ends.
        """
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
    """Return the metric label for the error of a handshake: `busy`, `failed`, `denied` or
    `internal`.
    """
    if isinstance(error, HandshakeError | TimeoutError):
        return "busy" if isinstance(error, BusyError) else "failed"
    return "denied" if isinstance(error, DeniedError) else "internal"
