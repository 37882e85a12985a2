"""The request by which a machine opens its space: `unlock` (PROTOCOL.md 9.7, 10.9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from confide_crypto.errors import RequestError
from confide_daemon.access.callers import Caller
from confide_daemon.errors import GrantError, WrongKeyError
from confide_daemon.server.requests.router import Operation
from confide_daemon.spaces.pool import Spaces


class CustodyRequests:
    """One connection's.

    Attributes:
        operations: by their names.
    """

    def __init__(self, spaces: Spaces, caller: Callable[[], Caller], may_decide: Callable[[Caller], bool]) -> None:
        """`caller` is asked at each step, and raises GrantError once its access has ended; `may_decide` as `RosterDesk.may_decide`."""
        self._spaces = spaces
        self._may_decide = may_decide
        self._caller = caller
        self.operations: dict[str, Operation] = {"unlock": self._unlock}

    async def _unlock(self, keys: dict[int, bytes]) -> dict[str, Any]:
        caller = self._caller()
        roster = await asyncio.to_thread(self._spaces.rosters.current, caller.space_id)
        if roster is None or caller.public_key not in roster.devices:
            hint = "approve it on one of them first: confide device approve"
            raise GrantError("this machine is not among the devices of its space", hint=hint)
        may_change = await asyncio.to_thread(self._may_decide, self._caller())
        caller = self._caller()
        try:
            await self._spaces.unlock(caller.space_id, keys, may_change=may_change and caller.grants.may_write)
        except WrongKeyError as error:
            raise RequestError("invalid", error.message, error.hint) from error
        return {"isLocked": self._spaces.is_locked(caller.space_id)}
