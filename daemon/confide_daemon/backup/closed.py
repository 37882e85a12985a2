"""The spaces of a data folder that no daemon serves, whose lock the command has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from confide_crypto.errors import ConfideError
from confide_daemon.access.registry import State
from confide_daemon.datadir.key_state import KeyName
from confide_daemon.spaces.custodian import Custodian


class ClosedSpaces:
    """Nobody opens one, and the keys that machines keep are not at hand."""

    def __init__(self, state: State) -> None:
        self._state = state

    @asynccontextmanager
    async def still(self, space_id: str) -> AsyncIterator[bytes | None]:
        """As `snapshot.Spaces.still`."""
        try:
            _, key = Custodian(space_id, self._state.folder, self._state.master).opening_key()
        except ConfideError:
            yield None
        else:
            yield key

    def key(self, space_id: str, name: KeyName) -> bytes | None:
        """As `verify.Keys.key`."""
        return self._state.master.space_key(space_id, name.number) if name.keeper == "server" else None
