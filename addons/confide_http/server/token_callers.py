"""By what a request is let in: a bearer token of the registry."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from confide_daemon.access.enrolled_callers import Caller
from confide_daemon.access.registry import Registry
from confide_http.server.access.sign_ins import SignIns

SCOPES: Final = ("memory:read", "memory:write")
HINT: Final = "confided http allow makes one on the server; send it as Authorization: Bearer TOKEN"


@dataclass(frozen=True, slots=True)
class Admitted:
    """Who was let in. `left_s`: for how long the token is good, where it is one of a sign-in, which turns over; None: as its caller is."""

    caller: Caller
    left_s: float | None


class TokenCallers:
    """Whom tokens stand for, by their SHA-256."""

    def __init__(self, registry: Registry, resource: str) -> None:
        """`resource`: what tokens of a sign-in have to be for."""
        self._registry = registry
        self._sign_ins = SignIns(registry)
        self._resource = resource

    def admitted(self, digest: bytes) -> Admitted | None:
        """Whom a token lets in now."""
        caller = self.good(digest)
        if caller is not None:
            return Admitted(caller, None)
        access = self._sign_ins.access(digest, self._resource)
        now = self._registry.clock()
        if access is None or access.caller.closed(now):
            return None
        return Admitted(access.caller, access.until - now)

    async def sought(self, digest: bytes) -> Admitted | None:
        """The same, of one that another node may have let in a moment ago. Raises EngineError: nobody can tell."""
        return await asyncio.to_thread(self._registry.sought, lambda: self.admitted(digest))

    async def known(self, key: bytes) -> Caller | None:
        """The same as `good`, of one that another node has let in a moment ago. Raises EngineError."""
        return await asyncio.to_thread(self._registry.sought, lambda: self.good(key))

    def good(self, key: bytes) -> Caller | None:
        """The caller with this key, as the registry has it now: of a token its SHA-256. None where it may not come (any more)."""
        caller = self._registry.gateway_client(key)
        return None if caller is None or caller.closed(self._registry.clock()) else caller
