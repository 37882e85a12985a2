"""The spaces of a data folder that no daemon serves, whose lock the command has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from confide_crypto.errors import ConfideError
from confide_daemon.access.registry import State
from confide_daemon.config import ChunkSettings
from confide_daemon.datadir.key_state import KeyName
from confide_daemon.spaces.custodian import Custodian
from confide_daemon.spaces.entry import Stilled
from confide_daemon.spaces.leases import Leases


class ClosedSpaces:
    """Nobody opens one here, and the keys that machines keep are not at hand."""

    def __init__(self, state: State, *, leases: Leases | None = None, chunks: ChunkSettings | None = None) -> None:
        """`leases`: of the store, if the files are copies; None: they are all there is, or are to be left as they are."""
        self._state = state
        self.leases = leases
        self.chunks = chunks or ChunkSettings()

    @asynccontextmanager
    async def still(self, space_id: str) -> AsyncIterator[Stilled]:
        """As `snapshot.Spaces.still`."""
        custodian: Custodian | None = None
        key: bytes | None = None
        try:
            custodian = Custodian(space_id, self._state.folder, self._state.master)
            _, key = custodian.opening_key()
        except ConfideError:
            pass
        yield Stilled(key, custodian)

    def key(self, space_id: str, name: KeyName) -> bytes | None:
        """As `verify.Keys.key`."""
        return self._state.master.space_key(space_id, name.number) if name.keeper == "server" else None
