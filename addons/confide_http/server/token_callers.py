"""Authenticates HTTP clients by the bearer tokens in the registry."""

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
    """An authenticated client. `left_s` is the number of seconds until its access token expires, or
    None for a token of the operator, which lasts as long as the client's access.
    """

    caller: Caller
    left_s: float | None


class TokenCallers:
    """Finds the clients of tokens by the SHA-256 of the token."""

    def __init__(self, registry: Registry, resource: str) -> None:
        """`resource`: for which tokens of a sign-in must be valid."""
        self._registry = registry
        self._sign_ins = SignIns(registry)
        self._resource = resource

    def admit(self, digest: bytes) -> Admitted | None:
        """Return the client of the token with this SHA-256, or None if the token is not valid now."""
        caller = self.good(digest)
        if caller is not None:
            return Admitted(caller, None)
        access = self._sign_ins.access(digest, self._resource)
        now = self._registry.clock()
        if access is None or access.caller.refusal_reason(now):
            return None
        return Admitted(access.caller, access.until - now)

    async def sought(self, digest: bytes) -> Admitted | None:
        """Return the client of the token with this SHA-256, even if another node has just issued
        the token; None if it is not valid now. Raises EngineError if the changes of other nodes
        cannot be read.
        """
        return await asyncio.to_thread(self._registry.sought, lambda: self.admit(digest))

    async def current_caller(self, key: bytes) -> Caller | None:
        """Return the client with this registry key (the SHA-256 of a token), even if another node
        has just added it; None if it has no access now. Raises EngineError if the changes of other
        nodes cannot be read.
        """
        return await asyncio.to_thread(self._registry.sought, lambda: self.good(key))

    def good(self, key: bytes) -> Caller | None:
        """Return the client with this registry key (the SHA-256 of a token), or None if it has no
        access now.
        """
        caller = self._registry.gateway_client(key)
        return None if caller is None or caller.refusal_reason(self._registry.clock()) else caller
