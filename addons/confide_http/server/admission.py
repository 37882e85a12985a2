"""By what a request is let in: a bearer token of the registry."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from confide_crypto.keys.tokens import digest_of
from confide_daemon.access.callers import Caller
from confide_daemon.access.registry import Registry
from confide_http.door.admission import Challenge, Guesses, bearer_of
from confide_http.server.access.sign_in import SignIns

PATH: Final = "/mcp"
SCOPES: Final = ("memory:read", "memory:write")
_HINT: Final = "confided gateway allow makes one on the server; send it as Authorization: Bearer TOKEN"


@dataclass(frozen=True, slots=True)
class Admitted:
    """Who was let in. `left_s`: for how long the token is good, where it is one of a sign-in, which turns over; None: as its caller is."""

    caller: Caller
    left_s: float | None


def resource_of(origin: str) -> str:
    """What tokens are good for (RFC 8707, RFC 9728)."""
    return origin + PATH


class Bearer:
    """Admission by `Authorization: Bearer`."""

    def __init__(self, registry: Registry, origin: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`origin`: of the addresses that clients are told."""
        self._registry = registry
        self._sign_ins = SignIns(registry)
        self._resource = resource_of(origin)
        self._guesses = Guesses(clock=clock)
        self.challenge = Challenge(lambda: origin, SCOPES, hint=_HINT)

    async def __call__(self, request: Request) -> Admitted:
        """Raises RefusalError: 400 for two of them, 401 for none or a wrong, an expired or a revoked one, 429 after too many wrong ones;
        EngineError: nobody can tell whether another node has just let it in."""
        text = bearer_of(request)
        if text is None:
            raise self.challenge.without()
        digest = digest_of(text)
        admitted = self._admitted(digest) if digest is not None else None
        if admitted is None and digest is not None and not self._guesses.are_spent:
            admitted = await asyncio.to_thread(self._registry.sought, lambda: self._admitted(digest))
        if admitted is None:
            self._guesses.count()
            raise self.challenge.unknown()
        return admitted

    def _admitted(self, digest: bytes) -> Admitted | None:
        caller = self.good(digest)
        if caller is not None:
            return Admitted(caller, None)
        access = self._sign_ins.access(digest, self._resource)
        now = self._registry.clock()
        if access is None or access.caller.closed(now):
            return None
        return Admitted(access.caller, access.until - now)

    async def known(self, key: bytes) -> Caller | None:
        """The same as `good`, of one that another node has let in a moment ago. Raises EngineError."""
        return await asyncio.to_thread(self._registry.sought, lambda: self.good(key))

    def good(self, key: bytes) -> Caller | None:
        """The caller with this key, as the registry has it now: of a token its SHA-256. None where it may not come (any more)."""
        caller = self._registry.gateway_client(key)
        return None if caller is None or caller.closed(self._registry.clock()) else caller
