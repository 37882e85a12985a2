"""Spaces that are not open in this process: those of a data folder without a running daemon, and
those that other nodes hold.

The local copies of other nodes' spaces are updated from their logs before a snapshot copies them.
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
"""Called with the step (a few words), the amount done, and the total."""


class SpaceAccess(Protocol):
    """Access to spaces and their keys. A running daemon has its pool of open spaces, a command
    without a daemon has `OfflineSpaces`.
    """

    @property
    def leases(self) -> Leases | None:
        """The leases on the logs of spaces that several nodes share; None if spaces exist only as
        files.
        """

    @property
    def chunks(self) -> ChunkSettings:
        """The settings for cutting the spaces' documents into chunks."""

    def freeze(self, space_id: str) -> AbstractAsyncContextManager[FrozenSpace]:
        """Return the space's state. Within this context the space is not opened, and its database
        and key custody file do not change.
        """

    def key(self, space_id: str, name: KeyName) -> bytes | None:
        """Return the space's 32-byte key with this name, or None if only a device has it."""


class OfflineSpaces:
    """The spaces of a data folder whose lock this command holds. No space is open, and keys that
    devices keep are not available.
    """

    def __init__(
        self, state: RegistryState, *, leases: Leases | None = None, chunks: ChunkSettings | None = None
    ) -> None:
        """Prepare access; `leases` belong to the shared store if the files are copies.

        Without `leases`, the files are complete, or stay as they are.
        """
        self._state = state
        self.leases = leases
        self.chunks = chunks or ChunkSettings()

    @asynccontextmanager
    async def freeze(self, space_id: str) -> AsyncIterator[FrozenSpace]:
        """Return the space's state; within this context its files do not change."""
        custodian: Custodian | None = None
        key: bytes | None = None
        with suppress(ConfideError):
            custodian = Custodian(space_id, self._state.folder, self._state.master)
            _, key = custodian.opening_key()
        yield FrozenSpace(key, custodian)

    def key(self, space_id: str, name: KeyName) -> bytes | None:
        """Return the space's 32-byte key with this name, or None if only a device has it."""
        return self._state.master.space_key(space_id, name.number) if name.keeper == "server" else None


async def present(leases: Leases | None, folder: DataFolder, space_ids: Collection[str]) -> list[str]:
    """Return those of the given spaces that have data in the folder or in the shared store."""
    logged: set[str] = set()
    if leases is not None:
        try:
            logged = await asyncio.to_thread(leases.spaces_with_logs)
        except EngineError as error:
            log.warning("spaces that are not on this machine are left out: %s", error)
    return [one for one in space_ids if one in logged or folder.space(one).exists()]


async def catch_up(
    leases: Leases | None, space_id: str, folder: DataFolder, stilled: FrozenSpace, chunks: ChunkSettings
) -> tuple[bytes | None, bool]:
    """Return the key of a space's database, or None if it is not available, and True if the file
    has all confirmed changes that this node knows of.

    If the space is not open here, the changes of other nodes are first added to the file, as far as
    possible.
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
    """Update the file from its log; return False if it stays unchanged because its key is not
    available.

    This takes no lease, so the holder keeps writing: the file then has the state of a time after
    this call.
    """
    with leases.view(space_id) as found:
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
