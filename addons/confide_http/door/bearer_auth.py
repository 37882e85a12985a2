"""Bearer authentication, and the limit of wrong guesses.

All users of one computer, or behind one proxy, share an address, so guesses are counted together:
beyond `MOST_GUESSES` a minute a wrong token gets a cheap 429. A valid one always passes, so no
client is locked out by the guesses of others.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from confide_crypto.keys.bearer_tokens import digest_of
from confide_http.door.refusals import RefusalError

MOST_GUESSES: Final = 30
"""Wrong tokens answered with 401 within `WINDOW_S`. A token has 256 bits: the limit is against load
and log noise.
"""
WINDOW_S: Final = 60.0
PATH: Final = "/mcp"
METADATA: Final = "/.well-known/oauth-protected-resource"
"""The path of a resource's metadata (RFC 9728)."""

T = TypeVar("T")


class Guesses:
    """A counter of the wrong tokens of the last minute."""

    def __init__(self, what: str = "wrong tokens", clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._at: deque[float] = deque(maxlen=MOST_GUESSES)

    @property
    def are_spent(self) -> bool:
        """Return True if the limit is reached, so that the next wrong token is refused without a
        lookup.
        """
        return len(self._at) == MOST_GUESSES and self._clock() - self._at[0] <= WINDOW_S

    def count(self) -> None:
        """Count one wrong token. Raises RefusalError with status 429 if there were too many in the
        last minute.
        """
        now = self._clock()
        while self._at and now - self._at[0] > WINDOW_S:
            self._at.popleft()
        if len(self._at) == MOST_GUESSES:
            wait_s = max(1, round(WINDOW_S - (now - self._at[0])))
            raise RefusalError(429, "busy", f"too many {self._what}", headers={"Retry-After": str(wait_s)})
        self._at.append(now)


class Bearer(Generic[T]):
    """Authentication by `Authorization: Bearer`, with the challenge for refused requests (RFC 6750,
    RFC 9728).
    """

    def __init__(
        self,
        find: Callable[[bytes], T | None],
        origin: Callable[[], str],
        scopes: Sequence[str],
        *,
        hint: str,
        seek: Callable[[bytes], Awaitable[T | None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        find: returns the holder of the token with this SHA-256, as far as this process knows.
        origin: of the public addresses, such as `https://memory.example.org`.
        hint: how a user creates a token.
        seek: like `find`, but includes tokens that another process has just created; slower.
        """
        self._find = find
        self._seek = seek
        self._origin = origin
        self._scopes = tuple(scopes)
        self._hint = hint
        self._guesses = Guesses(clock=clock)

    async def __call__(self, request: Request) -> T:
        """Return the authenticated holder of the request's token.

        Raises RefusalError: 400 for two tokens, 401 for none or a wrong, an expired or a revoked
        one, 429 after too many wrong ones; and whatever `seek` raises.
        """
        text = bearer_of(request)
        if text is None:
            raise self._refusal("this takes a token", "")
        digest = digest_of(text)
        found = None if digest is None else self._find(digest)
        if found is None and digest is not None and self._seek is not None and not self._guesses.are_spent:
            found = await self._seek(digest)
        if found is None:
            self._guesses.count()
            raise self.unknown_token_error()
        return found

    def unknown_token_error(self) -> RefusalError:
        """Build the refusal for a wrong, an expired or a revoked token. The text is the same for
        all three.
        """
        return self._refusal("the token is not valid here", ', error="invalid_token"')

    def metadata_routes(self, *, servers: Sequence[str] = ()) -> list[Route]:
        """Return the routes that serve the resource's metadata (RFC 9728). `servers` are the
        authorization servers that issue its tokens.
        """

        async def describe(_request: Request) -> Response:
            fields = {
                "resource": resource_of(self._origin()),
                "scopes_supported": list(self._scopes),
                "bearer_methods_supported": ["header"],
                "resource_name": "Confide memory",
            }
            return JSONResponse(fields | ({"authorization_servers": list(servers)} if servers else {}))

        return [Route(path, describe, methods=["GET"]) for path in (METADATA, METADATA + PATH)]

    def _refusal(self, message: str, more: str) -> RefusalError:
        said = f'Bearer resource_metadata="{self._origin()}{METADATA}", scope="{" ".join(self._scopes)}"{more}'
        return RefusalError(401, "denied", message, hint=self._hint, headers={"WWW-Authenticate": said})


def resource_of(origin: str) -> str:
    """Return the identifier of the resource that tokens are issued for (RFC 8707, RFC 9728)."""
    return origin + PATH


def bearer_of(request: Request) -> str | None:
    """Return the token of a request, or None if it has none. Raises RefusalError with status 400 if
    the request has two.
    """
    given = request.headers.getlist("authorization")
    if len(given) > 1:
        raise RefusalError(400, "invalid", "there are two Authorization headers")
    scheme, _, text = given[0].partition(" ") if given else ("", "", "")
    return text.strip() or None if scheme.lower() == "bearer" else None
