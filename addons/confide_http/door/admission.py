"""By what a request is let in: a bearer token, and how many guesses there may be.

All who sit on one machine, or behind one proxy, share an address, so guesses are counted together: past `MOST_GUESSES` a minute a wrong
token is answered with 429 and cheaply. A right one always passes, so that nobody is shut out by another's guesses.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from starlette.requests import Request

from confide_http.door.refusals import RefusalError

MOST_GUESSES: Final = 30
"""Wrong tokens that are answered with 401 within `WINDOW_S`. A token has 256 bits: what this bounds is work and noise."""
WINDOW_S: Final = 60.0
METADATA: Final = "/.well-known/oauth-protected-resource"
"""Where RFC 9728 has a resource describe itself."""


class Guesses:
    """Those of the last minute."""

    def __init__(self, what: str = "wrong tokens", clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._at: deque[float] = deque(maxlen=MOST_GUESSES)

    @property
    def are_spent(self) -> bool:
        """Whether there were so many that the next one is answered without being looked at."""
        return len(self._at) == MOST_GUESSES and self._clock() - self._at[0] <= WINDOW_S

    def count(self) -> None:
        """One more. Raises RefusalError, 429: there were too many."""
        now = self._clock()
        while self._at and now - self._at[0] > WINDOW_S:
            self._at.popleft()
        if len(self._at) == MOST_GUESSES:
            wait_s = max(1, round(WINDOW_S - (now - self._at[0])))
            raise RefusalError(429, "busy", f"too many {self._what}", headers={"Retry-After": str(wait_s)})
        self._at.append(now)


class Challenge:
    """What whoever is not let in is told: 401, with where to learn what a token takes (RFC 6750, RFC 9728)."""

    def __init__(self, origin: Callable[[], str], scopes: Sequence[str], *, hint: str) -> None:
        """
        Args:
            origin: of the addresses that clients are told, such as `https://memory.example.org`.
            hint: how a token is made.
        """
        self._origin = origin
        self._scopes = " ".join(scopes)
        self._hint = hint

    def without(self) -> RefusalError:
        """There was no token."""
        return self._refusal("this takes a token", "")

    def unknown(self) -> RefusalError:
        """It is wrong, expired or taken away: whoever has it is not told which."""
        return self._refusal("the token is none that is good here", ', error="invalid_token"')

    def _refusal(self, message: str, more: str) -> RefusalError:
        told = f'Bearer resource_metadata="{self._origin()}{METADATA}", scope="{self._scopes}"{more}'
        return RefusalError(401, "denied", message, hint=self._hint, headers={"WWW-Authenticate": told})


def bearer_of(request: Request) -> str | None:
    """The token that a request brings; None for none. Raises RefusalError, 400: it brings two."""
    given = request.headers.getlist("authorization")
    if len(given) > 1:
        raise RefusalError(400, "invalid", "there are two Authorization headers")
    scheme, _, text = given[0].partition(" ") if given else ("", "", "")
    return text.strip() or None if scheme.lower() == "bearer" else None
