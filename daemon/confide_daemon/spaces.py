"""The spaces that are open: each database once, however many connections use it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from confide_crypto.errors import ConfideError
from confide_daemon.embed import EmbedderHandle
from confide_daemon.errors import StorageError
from confide_daemon.history import DELETED_DAYS
from confide_daemon.space import IndexSettings, Space
from confide_daemon.state import State
from confide_daemon.store.connection import migrations
from confide_daemon.store.sqlite import SqliteStore
from confide_daemon.upkeep import OPEN

log = logging.getLogger(__name__)

# The name of the handle that stands for none (`EmbedderHandle.none`).
NO_MODEL = "none"
# Looked through for one that is open; more are not kept.
BREACHES = 1000


class Spaces:
    """Opens a space at its first use and keeps it until the daemon ends (one writer a space)."""

    def __init__(
        self,
        state: State,
        settings: IndexSettings,
        embedder: EmbedderHandle | Sequence[EmbedderHandle],
        *,
        deleted_days: int = DELETED_DAYS,
    ) -> None:
        """`embedder`: the models, the wanted one first. `deleted_days` is how long a deleted document can come back."""
        self._deleted_days = deleted_days
        self._state = state
        self._settings = settings
        self._embedder = embedder
        self._opening: dict[str, asyncio.Task[Space]] = {}

    async def get(self, space_id: str) -> Space:
        """The open space with this id.

        Raises:
            StorageError: it cannot be opened.
        """
        task = self._opening.get(space_id)
        if task is None or (task.done() and task.exception() is not None):
            # A task of its own: a connection that goes away while it waits must not leave the space half open for the others.
            task = asyncio.create_task(self._open(space_id))
            self._opening[space_id] = task
        return await asyncio.shield(task)

    def ailments(self) -> set[str]:
        """What does not work as it should in any of them (`Space.ailments`)."""
        found: set[str] = set()
        for task in self._opening.values():
            if task.done() and not task.cancelled():
                found |= {"storage"} if task.exception() is not None else task.result().ailments()
        # Whoever wants no model has none that could fail.
        return found - {"embedding"} if self._is_without_model else found

    async def look_at_all(self) -> None:
        """Looks at the spaces that nobody uses yet, and opens those that something is wrong with, so that it is put right and told of."""
        for space_id in self._state.registry.spaces().values():
            path = self._state.folder.space(space_id)
            if space_id in self._opening or not path.exists():
                continue
            try:
                is_sound = await asyncio.to_thread(glance, path, self._state.master.space_key(space_id))
            except StorageError:
                is_sound = False
            if not is_sound:
                with suppress(ConfideError):
                    await self.get(space_id)

    async def close(self) -> None:
        """Finish what is being written and close all."""
        for space_id, task in list(self._opening.items()):
            try:
                await (await task).close()
            except Exception as error:
                # One space that cannot close must not keep the others from closing.
                log.error("space %s did not close: %s", space_id, type(error).__name__)
        self._opening.clear()

    @property
    def _is_without_model(self) -> bool:
        embedders = [self._embedder] if isinstance(self._embedder, EmbedderHandle) else self._embedder
        return all(embedder.name == NO_MODEL for embedder in embedders)

    async def _open(self, space_id: str) -> Space:
        key = self._state.master.space_key(space_id)
        return await Space.open(
            self._state.folder.space(space_id),
            key,
            space_id=space_id,
            settings=self._settings,
            embedder=self._embedder,
            deleted_days=self._deleted_days,
        )


def glance(path: Path, key: bytes) -> bool:
    """Whether a space that nobody has open looks sound. Raises StorageError."""
    store = SqliteStore.open(path, key, writer=False, now=0.0)
    try:
        if store.schema_version() < migrations()[-1][0]:
            return True  # it is upgraded when it is opened, and looked at then
        is_settled = all(breach.healed_at for breach in store.breaches(limit=BREACHES))
        return is_settled and not store.mark(OPEN) and not store.glance()
    finally:
        store.close()
