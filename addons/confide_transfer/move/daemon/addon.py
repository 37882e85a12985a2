"""A space that moves, as the daemon sees it: where each space is on its way, and what each session answers of that."""

from __future__ import annotations

from collections.abc import Iterable

from confide_daemon.addons import Addon, SessionHost, SessionPart
from confide_daemon.config import DaemonConfig
from confide_daemon.spaces.part import SpacePart
from confide_daemon.spaces.space import Space
from confide_transfer.move.daemon.requests import MovingRequests
from confide_transfer.move.daemon.space_transfer import Moving


class Move(Addon):
    """A space goes to another daemon, or comes from one."""

    def space(self, space: Space, config: DaemonConfig) -> Iterable[SpacePart]:
        """Return where the space is on its way."""
        return (Moving(space.threads, space.index.indexer),)

    def session(self, session: SessionHost) -> Iterable[SessionPart]:
        """Return the requests by which a machine carries a space."""
        return (MovingRequests(session),)
