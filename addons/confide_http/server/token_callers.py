"""Authentication by the registry's bearer tokens."""

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
    """An authenticated caller. `left_s`: seconds until the access token of a sign-in expires; None
    for a token that lasts as long as its caller.
    """

    caller: Caller
    left_s: float | None


class TokenCallers:
    """The callers of tokens, by SHA-256."""

    def __init__(self, registry: Registry, resource: str) -> None:
        """`resource`: for which tokens of a sign-in must be valid."""
        self._registry = registry
        self._sign_ins = SignIns(registry)
        self._resource = resource

    def admit(self, digest: bytes) -> Admitted | None:
        """Return the caller of a token that is valid now."""
        caller = self.good(digest)
        if caller is not None:
            return Admitted(caller, None)
        access = self._sign_ins.access(digest, self._resource)
        now = self._registry.clock()
        if access is None or access.caller.refusal_reason(now):
            return None
        return Admitted(access.caller, access.until - now)

    async def sought(self, digest: bytes) -> Admitted | None:
        """Return the caller of a token that is valid now, even if another node has just issued it.
        Raises EngineError: the other nodes' changes are unavailable.
        """
        return await asyncio.to_thread(self._registry.sought, lambda: self.admit(digest))

    async def current_caller(self, key: bytes) -> Caller | None:
        """Return the current caller with this key (a token's SHA-256), even if another node has just
        added it; None if it has no access. Raises EngineError.
        """
        return await asyncio.to_thread(self._registry.sought, lambda: self.good(key))

    def good(self, key: bytes) -> Caller | None:
        """Return the current caller with this key (a token's SHA-256), or None if it has no access
        (any more).
        """
        caller = self._registry.gateway_client(key)
        return None if caller is None or caller.refusal_reason(self._registry.clock()) else caller
