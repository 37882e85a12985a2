"""By what a request is let in: a bearer token of the registry."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from starlette.requests import Request

from confide_crypto.keys.tokens import digest_of
from confide_daemon.access.callers import Caller
from confide_daemon.access.registry import Registry
from confide_door.admission import Challenge, Guesses, bearer_of

SCOPES: Final = ("memory:read", "memory:write")
_HINT: Final = "confided gateway allow makes one on the server; send it as Authorization: Bearer TOKEN"


class Bearer:
    """Admission by `Authorization: Bearer`."""

    def __init__(self, registry: Registry, origin: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`origin`: of the addresses that clients are told."""
        self._registry = registry
        self._guesses = Guesses(clock=clock)
        self.challenge = Challenge(lambda: origin, SCOPES, hint=_HINT)

    def __call__(self, request: Request) -> Caller:
        """Raises RefusalError: 400 for two of them, 401 for none or a wrong, an expired or a revoked one, 429 after too many wrong ones."""
        text = bearer_of(request)
        if text is None:
            raise self.challenge.without()
        digest = digest_of(text)
        caller = self.good(digest) if digest is not None else None
        if caller is None:
            self._guesses.count()
            raise self.challenge.unknown()
        return caller

    def good(self, digest: bytes) -> Caller | None:
        """The caller whose token has this SHA-256, as the registry has it now; None where it may not come (any more)."""
        caller = self._registry.gateway_client(digest)
        return None if caller is None or caller.closed(self._registry.clock()) else caller
