"""Spaces that nobody has open here: those of a data folder that no daemon serves, and those that other nodes hold, whose copies are brought
up to what their logs have before they are copied on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Protocol

from confide_crypto.errors import ConfideError
from confide_daemon.access.registry import RegistryState
from confide_daemon.config import ChunkSettings
from confide_daemon.datadir.key_state import KeyName
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.errors import EngineError, LockedError, WrongKeyError
from confide_daemon.retrieval.indexing.indexer import Derivation
from confide_daemon.spaces.custodian import Custodian
from confide_daemon.spaces.space_slot import FrozenSpace
from confide_daemon.store.logs import Leases
from confide_daemon.store.space_store import Store

log = logging.getLogger(__name__)

Follow = Callable[[str, int, int], None]
"""Told of the step (a few words), how much of it is done, and how much there is."""


class SpaceAccess(Protocol):
    """Whoever has the spaces and their keys: the pool of a running daemon, or nobody (`OfflineSpaces`)."""

    @property
    def leases(self) -> Leases | None:
        """Of their logs, which other nodes may write to; None: their files are all there is."""

    @property
    def chunks(self) -> ChunkSettings:
        """How their documents are cut."""

    def freeze(self, space_id: str) -> AbstractAsyncContextManager[FrozenSpace]:
        """How the space is; within this its file and its custody are not changed, nor is one opened that nobody has open."""

    def key(self, space_id: str, name: KeyName) -> bytes | None:
        """The key of that name, 32 bytes; None where a machine has to bring it."""


class OfflineSpaces:
    """Those of a folder whose lock the command has: nobody opens one, and the keys that machines keep are not at hand."""

    def __init__(
        self, state: RegistryState, *, leases: Leases | None = None, chunks: ChunkSettings | None = None
    ) -> None:
        """`leases`: of the store, if the files are copies; None: they are all there is, or are to be left as they are."""
        self._state = state
        self.leases = leases
        self.chunks = chunks or ChunkSettings()

    @asynccontextmanager
    async def freeze(self, space_id: str) -> AsyncIterator[FrozenSpace]:
        """As `SpaceAccess.freeze`."""
        custodian: Custodian | None = None
        key: bytes | None = None
        with suppress(ConfideError):
            custodian = Custodian(space_id, self._state.folder, self._state.master)
            _, key = custodian.opening_key()
        yield FrozenSpace(key, custodian)

    def key(self, space_id: str, name: KeyName) -> bytes | None:
        """As `SpaceAccess.key`."""
        return self._state.master.space_key(space_id, name.number) if name.keeper == "server" else None


async def present(leases: Leases | None, folder: DataFolder, space_ids: Collection[str]) -> list[str]:
    """Those of the spaces that there is something of: in the folder, or in the store."""
    logged: set[str] = set()
    if leases is not None:
        try:
            logged = await asyncio.to_thread(leases.logged)
        except EngineError as error:
            log.warning("spaces that are not on this machine are left out: %s", error)
    return [one for one in space_ids if one in logged or folder.space(one).exists()]


async def caught_up(
    leases: Leases | None, space_id: str, folder: DataFolder, stilled: FrozenSpace, chunks: ChunkSettings
) -> tuple[bytes | None, bool]:
    """The key of a space's database, and whether the file has all that was acknowledged, as far as this machine knows.

    Where nobody has it open here, what other nodes have written in it comes first, as far as that can be.
    """
    custodian = stilled.custodian
    if leases is None or custodian is None:
        return stilled.key, True
    is_current = False
    try:
        is_current = await asyncio.to_thread(_catch_up, leases, space_id, folder.space(space_id), custodian, chunks)
    except ConfideError as error:
        log.warning("space %s is left as it is on this machine: %s", space_id, error)
    return await asyncio.to_thread(_key_here, custodian), is_current


def _catch_up(leases: Leases, space_id: str, path: Path, custodian: Custodian, chunks: ChunkSettings) -> bool:
    """Has the file be as its log is now; False: it stays as it was, since its key is not here.

    No lease is taken, so its holder writes on meanwhile: what is here then is of one moment after this was called.
    """
    with leases.looked_at(space_id) as found:
        if found is None:
            return True
        custody = found.custody
        key = custodian.key(custody.key) if custody is not None else _key_here(custodian)
        if key is None:
            return False
        behind = found.follow(path, key).documents
    if custody is not None:
        custodian.install(custody)
    if behind:
        with closing(Store.open(path, key, writer=True, now=time.time())) as store:
            Derivation(chunks).follow_all(store, behind)
    return True


def _key_here(custodian: Custodian) -> bytes | None:
    try:
        return custodian.opening_key()[1]
    except (LockedError, WrongKeyError):
        return None
