"""What all connections of a daemon share of rosters: the rosters themselves, who waits for them, and who is told when they change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from confide_daemon.enrolled import Caller
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


def _reaches_all(caller: Caller) -> bool:
    grants = caller.grants
    return grants.may_write and grants.projects is None and grants.sources is None


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

    def may_decide(self, caller: Caller) -> bool:
        """Whether a caller may decide for its whole space: it reaches all of it, or nobody who may write does. Raises StorageError.

        The first device has the say on who opens what all others seal, and who brings the next key of the database on who opens that.
        """
        now = self._registry.clock()
        owners = [
            one
            for one in self._registry.callers()
            if one.space_id == caller.space_id and _reaches_all(one) and one.closed(now) is None
        ]
        return not owners or any(one.public_key == caller.public_key for one in owners)

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
