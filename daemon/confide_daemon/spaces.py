"""The spaces that are open: each database once, however many connections use it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from confide_daemon.embed import EmbedderHandle
from confide_daemon.history import DELETED_DAYS
from confide_daemon.space import IndexSettings, Space
from confide_daemon.state import State

log = logging.getLogger(__name__)


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

    async def close(self) -> None:
        """Finish what is being written and close all."""
        for space_id, task in list(self._opening.items()):
            try:
                await (await task).close()
            except Exception as error:
                # One space that cannot close must not keep the others from closing.
                log.error("space %s did not close: %s", space_id, type(error).__name__)
        self._opening.clear()

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
