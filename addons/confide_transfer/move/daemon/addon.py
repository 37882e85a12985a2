"""The daemon's add-on for moves: the state of the move of each space, and the requests of each
session.
"""

from __future__ import annotations

from collections.abc import Iterable

from confide_daemon.addons import Addon, SessionHost, SessionPart
from confide_daemon.config import DaemonConfig
from confide_daemon.spaces.part import SpacePart
from confide_daemon.spaces.space import Space
from confide_transfer.move.daemon.requests import MovingRequests
from confide_transfer.move.daemon.space_transfer import Moving


class Move(Addon):
    """The daemon's add-on for moving a space to another daemon, or from one to this daemon."""

    def space(self, space: Space, config: DaemonConfig) -> Iterable[SpacePart]:
        """Return the object that keeps the state of a move of this space."""
        return (Moving(space.threads, space.index.indexer),)

    def session(self, session: SessionHost) -> Iterable[SessionPart]:
        """Return the handler of the requests by which a device moves the session's space."""
        return (MovingRequests(session),)
