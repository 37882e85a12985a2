"""By what a request is let in: a bearer token, and how many guesses there may be.

Whoever sits on this machine shares one address, so guesses are counted together: past `MOST_GUESSES` a minute a wrong token is answered
with 429 and cheaply. A right one always passes, so that nobody is shut out by another's guesses.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from starlette.requests import Request

from confide_proxy.gateway.door.identity import SCOPES, Identity, scopes_of
from confide_proxy.gateway.door.refusals import RefusalError
from confide_proxy.gateway.door.tokens import Token, Tokens

MOST_GUESSES: Final = 30
"""Wrong tokens that are answered with 401 within `WINDOW_S`. A token has 256 bits: what this bounds is work and noise."""
WINDOW_S: Final = 60.0
METADATA: Final = "/.well-known/oauth-protected-resource"
"""Where RFC 9728 has a resource describe itself."""

Admit = Callable[[Request], Identity]
"""Who makes a request. Raises RefusalError: nobody who may."""


class Bearer:
    """Admission by `Authorization: Bearer`."""

    def __init__(self, tokens: Tokens, origin: Callable[[], str], clock: Callable[[], float] = time.monotonic) -> None:
        """`origin`: of the gateway's own addresses, such as `http://127.0.0.1:7734`."""
        self._tokens = tokens
        self._origin = origin
        self._clock = clock
        self._guesses: deque[float] = deque(maxlen=MOST_GUESSES)

    def __call__(self, request: Request) -> Identity:
        """Raises RefusalError: 400 for two of them, 401 for none or a wrong, an expired or a revoked one, 429 after too many wrong ones."""
        given = request.headers.getlist("authorization")
        if len(given) > 1:
            raise RefusalError(400, "invalid", "there are two Authorization headers")
        scheme, _, text = given[0].partition(" ") if given else ("", "", "")
        if scheme.lower() != "bearer" or not text:
            raise self._unknown("this takes a token", "")
        token = self._tokens.find(text.strip())
        if token is None:
            self._count_guess()
            raise self._unknown("the token is none that is good here", ', error="invalid_token"')
        return identity_of_token(token)

    def _count_guess(self) -> None:
        now = self._clock()
        while self._guesses and now - self._guesses[0] > WINDOW_S:
            self._guesses.popleft()
        if len(self._guesses) == MOST_GUESSES:
            wait_s = max(1, round(WINDOW_S - (now - self._guesses[0])))
            raise RefusalError(429, "busy", "too many wrong tokens", headers={"Retry-After": str(wait_s)})
        self._guesses.append(now)

    def _unknown(self, message: str, more: str) -> RefusalError:
        challenge = f'Bearer resource_metadata="{self._origin()}{METADATA}", scope="{" ".join(SCOPES)}"{more}'
        hint = "confide token new makes one; send it as Authorization: Bearer TOKEN"
        return RefusalError(401, "denied", message, hint=hint, headers={"WWW-Authenticate": challenge})


def identity_of_token(token: Token) -> Identity:
    """Whom a token stands for."""
    projects = None if token.projects is None else frozenset(token.projects)
    class_ = "" if token.is_trusted else "untrusted"
    return Identity(token.name, token.digest, scopes_of(token.scopes), projects, class_, token.expires)
