"""By what a request is let in: a bearer token of this machine."""

from __future__ import annotations

import time
from collections.abc import Callable

from starlette.requests import Request

from confide_http.door.admission import Challenge, Guesses, bearer_of
from confide_http.local.door.identity import SCOPES, Identity, scopes_of
from confide_http.local.door.tokens import Token, Tokens

Admit = Callable[[Request], Identity]
"""Who makes a request. Raises RefusalError: nobody who may."""


class Bearer:
    """Admission by `Authorization: Bearer`."""

    def __init__(self, tokens: Tokens, origin: Callable[[], str], clock: Callable[[], float] = time.monotonic) -> None:
        """`origin`: of the gateway's own addresses, such as `http://127.0.0.1:7734`."""
        self._tokens = tokens
        self._guesses = Guesses(clock=clock)
        hint = "confide token new makes one; send it as Authorization: Bearer TOKEN"
        self._challenge = Challenge(origin, SCOPES, hint=hint)

    def __call__(self, request: Request) -> Identity:
        """Raises RefusalError: 400 for two of them, 401 for none or a wrong, an expired or a revoked one, 429 after too many wrong ones."""
        text = bearer_of(request)
        if text is None:
            raise self._challenge.without()
        token = self._tokens.find(text)
        if token is None:
            self._guesses.count()
            raise self._challenge.unknown()
        return identity_of_token(token)


def identity_of_token(token: Token) -> Identity:
    """Whom a token stands for."""
    projects = None if token.projects is None else frozenset(token.projects)
    class_ = "" if token.is_trusted else "untrusted"
    return Identity(token.name, token.digest, scopes_of(token.scopes), projects, class_, token.expires)
