"""What all connections of a daemon share of rosters: the rosters themselves, who waits for them, and who is told when they change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from confide_daemon.invites import Invites
from confide_daemon.registry import Registry
from confide_daemon.sealing.custody import CustodyFacts
from confide_daemon.sealing.pairings import Pairings
from confide_daemon.sealing.rosters import Rosters
from confide_daemon.sealing.unsealed import UnsealedCounts


class Follower(Protocol):
    """One connection."""

    def tell(self) -> None:
        """Something about the roster of its space is new. Never waits."""
        ...


class RosterDesk:
    """One for each daemon."""

    def __init__(self, registry: Registry, rosters: Rosters, custody: CustodyFacts) -> None:
        self.rosters = rosters
        self.pairings = Pairings(registry)
        self.invites = Invites(registry)
        self.unsealed = UnsealedCounts(registry)
        self.custody = custody
        self._registry = registry
        self._followers: dict[str, set[Follower]] = {}

    def is_enrolled(self, key: bytes) -> bool:
        """Whether this key is a caller's, and was not revoked. Raises StorageError."""
        caller = self._registry.caller(key)
        return caller is not None and caller.revoked_at is None

    @contextmanager
    def following(self, space_id: str, follower: Follower) -> Iterator[None]:
        """Within this, the follower is told of what others change in its space."""
        self._followers.setdefault(space_id, set()).add(follower)
        try:
            yield
        finally:
            mine = self._followers[space_id]
            mine.discard(follower)
            if not mine:
                del self._followers[space_id]

    def announce(self, space_id: str, origin: Follower | None = None) -> None:
        """Tell all connections of a space, but the one that changed something; on the event loop."""
        for follower in self._followers.get(space_id, ()):
            if follower is not origin:
                follower.tell()
