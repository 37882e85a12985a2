"""The request by which a machine opens its space: `unlock` (PROTOCOL.md 9.7, 10.9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from confide_crypto.errors import ConfideError, RequestError
from confide_crypto.sealing.entries import MAX_EPOCHS
from confide_daemon.enrolled import Caller
from confide_daemon.errors import GrantError, WrongKeyError
from confide_daemon.exchange import Operation, as_request_error
from confide_daemon.master import KEY_BYTES
from confide_daemon.sealing.fields import decoded
from confide_daemon.spaces import Spaces


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

    async def handle(self, op: str, body: dict[str, Any]) -> dict[str, Any]:
        """Answer one of the requests.

        Raises:
            RequestError: it cannot be done; the code says why.
        """
        try:
            return await self.operations[op](body)
        except WrongKeyError as error:
            raise RequestError("invalid", error.message, error.hint) from error
        except ConfideError as error:
            raise as_request_error(error) from error

    async def _unlock(self, body: dict[str, Any]) -> dict[str, Any]:
        keys = _keys(body.get("keys"))
        caller = self._caller()
        roster = await asyncio.to_thread(self._spaces.rosters.current, caller.space_id)
        if roster is None or caller.public_key not in roster.devices:
            hint = "approve it on one of them first: confide device approve"
            raise GrantError("this machine is not among the devices of its space", hint=hint)
        may_change = await asyncio.to_thread(self._may_decide, self._caller())
        caller = self._caller()
        await self._spaces.unlock(caller.space_id, keys, may_change=may_change and caller.grants.may_write)
        return {"isLocked": self._spaces.is_locked(caller.space_id)}


def _keys(said: Any) -> dict[int, bytes]:
    if not isinstance(said, dict) or not 0 < len(said) <= MAX_EPOCHS:
        raise RequestError("invalid", f"'keys' must be 1 to {MAX_EPOCHS} keys of the space's database, by their epochs")
    found = {_epoch(epoch): decoded(key, "keys", KEY_BYTES) for epoch, key in said.items()}
    if any(len(key) != KEY_BYTES for key in found.values()):
        raise RequestError("invalid", f"a key of a database has {KEY_BYTES} bytes")
    return found


def _epoch(said: str) -> int:
    if not (said.isascii() and said.isdecimal() and len(said) <= len(str(MAX_EPOCHS))):
        raise RequestError("invalid", "an epoch is a number")
    return int(said)
