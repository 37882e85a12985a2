"""By what a request is let in: a bearer token of the registry, and how many guesses there may be.

Behind a proxy all strangers come from one address, so guesses are counted together: past `MOST_GUESSES` a minute a wrong token is answered
with 429. A right one always passes, so that nobody is shut out by another's guesses.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from starlette.requests import Request

from confide_daemon.access.callers import Caller
from confide_daemon.access.gateway_clients import digest_of
from confide_daemon.access.registry import Registry
from confide_daemon.gateway.refusals import RefusalError

MOST_GUESSES: Final = 30
"""Wrong tokens that are answered with 401 within `WINDOW_S`. A token has 256 bits: what this bounds is work and noise."""
WINDOW_S: Final = 60.0
METADATA: Final = "/.well-known/oauth-protected-resource"
"""Where RFC 9728 has a resource describe itself."""
SCOPES: Final = ("memory:read", "memory:write")


class Bearer:
    """Admission by `Authorization: Bearer`."""

    def __init__(self, registry: Registry, origin: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`origin`: of the addresses that clients are told."""
        self._registry = registry
        self._origin = origin
        self._clock = clock
        self._guesses: deque[float] = deque(maxlen=MOST_GUESSES)

    def __call__(self, request: Request) -> Caller:
        """Raises RefusalError: 400 for two of them, 401 for none or a wrong, an expired or a revoked one, 429 after too many wrong ones."""
        given = request.headers.getlist("authorization")
        if len(given) > 1:
            raise RefusalError(400, "invalid", "there are two Authorization headers")
        scheme, _, text = given[0].partition(" ") if given else ("", "", "")
        if scheme.lower() != "bearer" or not text:
            raise self.unknown("this takes a token", "")
        digest = digest_of(text.strip())
        caller = self.good(digest) if digest is not None else None
        if caller is None:
            self._count_guess()
            raise self.unknown()
        return caller

    def good(self, digest: bytes) -> Caller | None:
        """The caller whose token has this SHA-256, as the registry has it now; None where it may not come (any more)."""
        caller = self._registry.gateway_client(digest)
        return None if caller is None or caller.closed(self._registry.clock()) else caller

    def unknown(
        self, message: str = "the token is none that is good here", more: str = ', error="invalid_token"'
    ) -> RefusalError:
        """401, with where to learn what a token takes."""
        challenge = f'Bearer resource_metadata="{self._origin}{METADATA}", scope="{" ".join(SCOPES)}"{more}'
        hint = "confided gateway allow makes one on the server; send it as Authorization: Bearer TOKEN"
        return RefusalError(401, "denied", message, hint=hint, headers={"WWW-Authenticate": challenge})

    def _count_guess(self) -> None:
        now = self._clock()
        while self._guesses and now - self._guesses[0] > WINDOW_S:
            self._guesses.popleft()
        if len(self._guesses) == MOST_GUESSES:
            wait_s = max(1, round(WINDOW_S - (now - self._guesses[0])))
            raise RefusalError(429, "busy", "too many wrong tokens", headers={"Retry-After": str(wait_s)})
        self._guesses.append(now)
