"""Base class of an add-on's part in each open space. The space makes it when it opens, and closes
it before it closes itself.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping
from typing import Final

from confide_crypto.errors import RequestError, where
from confide_crypto.transport.task_group import raise_if_cancelled

SPACE_LEFT: Final = "move: left"
"""Mark in the database: time at which the space moved to another daemon, in seconds since 1970. A
part does nothing from then on.
"""
PARTS_AWAITED: Final = "move: tasks awaited"
"""Mark in the database: time since which the space is here while the data of its parts is still to
be moved. Until then they do nothing.
"""

log = logging.getLogger(__name__)


async def run_safely(work: Awaitable[None], what: str) -> None:
    """Wait for an add-on's work; log an exception instead of raising it. `what` names the work for
    the log.
    """
    try:
        await work
    except Exception as error:
        raise_if_cancelled()
        log.error("%s broke: %s", what, where(error))  # its text may quote anything


class SpacePart:
    """Base of an add-on's part of a space. A subclass overrides the methods it needs; by default
    they do nothing.
    """

    async def open(self) -> None:
        """Read what the part needs before the space is used. Raises StorageError: the space does
        not open.
        """

    def start(self) -> None:
        """Start background work."""

    async def close(self) -> None:
        """Stop the background work. The database is still open."""

    async def finish(self) -> None:
        """Do the last work after everything else of the space is closed; its database is still
        open.
        """

    @property
    def is_held(self) -> bool:
        """True if the space must stay open without users, because only this object holds some
        state.
        """
        return False

    def refusal(self, session_id: str, op: str = "") -> RequestError | None:
        """Return the reason why a session may not use the space now, or None. `op`: the request, ""
        for a tool call.
        """

    async def items_to_move(self) -> Mapping[str, int]:
        """Return the number of items that move with the space to another daemon, by kind."""
        return {}

    def on_session_end(self, session_id: str) -> None:
        """Release a session's data of the space."""
