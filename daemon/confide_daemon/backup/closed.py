"""The spaces of a data folder that no daemon serves, whose lock the command has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from confide_crypto.errors import ConfideError
from confide_daemon.access.registry import State
from confide_daemon.config import ChunkSettings
from confide_daemon.datadir.key_state import KeyName
from confide_daemon.spaces.catching_up import Stilled, caught_up, present
from confide_daemon.spaces.custodian import Custodian
from confide_daemon.spaces.leases import Leases


class ClosedSpaces:
    """Nobody opens one here, and the keys that machines keep are not at hand."""

    def __init__(self, state: State, *, leases: Leases | None = None, chunks: ChunkSettings | None = None) -> None:
        """`leases`: of the store, if the files are copies; None: they are all there is, or are to be left as they are."""
        self._state = state
        self._leases = leases
        self._chunks = chunks or ChunkSettings()

    async def present(self, space_ids: Collection[str]) -> list[str]:
        """As `snapshot.Spaces.present`."""
        return await present(self._leases, self._state.folder, space_ids)

    @asynccontextmanager
    async def still(self, space_id: str) -> AsyncIterator[Stilled]:
        """As `snapshot.Spaces.still`."""
        try:
            custodian = Custodian(space_id, self._state.folder, self._state.master)
            if self._leases is None:
                stilled = Stilled(custodian.opening_key()[1])
            else:
                stilled = await caught_up(self._leases, space_id, self._state.folder, custodian, self._chunks)
        except ConfideError:
            yield Stilled(None)
        else:
            yield stilled

    def key(self, space_id: str, name: KeyName) -> bytes | None:
        """As `verify.Keys.key`."""
        return self._state.master.space_key(space_id, name.number) if name.keeper == "server" else None
