"""What an add-on has in each open space: made with it, and closed before it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping
from typing import Final

from confide_crypto.errors import RequestError, where
from confide_crypto.transport.task_group import raise_if_cancelled

SPACE_LEFT: Final = "move: left"
"""A mark in the database: when the space went to another daemon, in seconds since 1970. A part does nothing from then on."""
PARTS_AWAITED: Final = "move: tasks awaited"
"""A mark: since when the space is here, while what parts carry is still to come. Until then they do nothing."""

log = logging.getLogger(__name__)


async def unharmed(work: Awaitable[None], what: str) -> None:
    """Wait for what an add-on does; where that breaks, the log says so, and the core goes on. `what` it is, for the log."""
    try:
        await work
    except Exception as error:
        raise_if_cancelled()
        log.error("%s broke: %s", what, where(error))  # its text may quote anything


class SpacePart:
    """Base of an add-on's part. A subclass overrides what it has something to say to; the rest does nothing."""

    async def open(self) -> None:
        """Read what has to be known before anybody uses the space. Raises StorageError: then it does not open."""

    def start(self) -> None:
        """Begin what runs beside the space's use."""

    async def close(self) -> None:
        """End what `start` began. The database is still open."""

    async def finish(self) -> None:
        """Do what comes last: all else of the space is closed, and its database is still open."""

    @property
    def is_held(self) -> bool:
        """Whether the space must stay open though nobody uses it, since only this object knows of something."""
        return False

    def refusal(self, session_id: str, op: str = "") -> RequestError | None:
        """Return why a session may not use the space now, None where it may. `op`: the request that it makes, "" for a call of a tool."""

    async def carried(self) -> Mapping[str, int]:
        """Return how much it has that goes along when the space moves to another daemon, by kind."""
        return {}

    def session_ended(self, session_id: str) -> None:
        """Let go of what a session had of the space."""
