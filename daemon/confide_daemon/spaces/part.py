"""Base class for the state that an add-on keeps in each open space (its "part"). The space creates
the part when it opens, and closes the part before it closes itself.
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
    """Wait for an add-on's work, and log an exception instead of raising it. `what` names the work
    in the log.
    """
    try:
        await work
    except Exception as error:
        raise_if_cancelled()
        log.error("%s broke: %s", what, where(error))  # its text may quote anything


class SpacePart:
    """Base class for an add-on's state in one open space. A subclass overrides the methods it
    needs; by default they do nothing.
    """

    async def open(self) -> None:
        """Load what the add-on needs before the space is used. Raises StorageError to keep the
        space from opening.
        """

    def start(self) -> None:
        """Start the add-on's background work in this space."""

    async def close(self) -> None:
        """Stop the add-on's background work in the space. The database is still open."""

    async def finish(self) -> None:
        """Do the last work of the add-on, after everything else in the space is closed. The
        database is still open.
        """

    @property
    def is_held(self) -> bool:
        """True if the space must stay open even without users, because the add-on has state that
        exists only in this object.
        """
        return False

    def refusal(self, session_id: str, op: str = "") -> RequestError | None:
        """Return why a session may not use the space now, or None if it may. `op`: the name of the
        request; "" for a tool call.
        """

    async def items_to_move(self) -> Mapping[str, int]:
        """Return how many of the add-on's items, by kind, move with the space to another daemon."""
        return {}

    def on_session_end(self, session_id: str) -> None:
        """Release everything that belongs to a session which has ended."""
