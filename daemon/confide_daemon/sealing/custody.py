"""Who keeps the key of a space's database, as far as the other parts of a daemon ask (PROTOCOL.md 10.9)."""

from __future__ import annotations

from typing import Protocol

from confide_daemon.custody.custody import Keeper


class CustodyFacts(Protocol):
    """Asked on the event loop: answers from memory, without waiting."""

    def custody(self, space_id: str, /) -> Keeper:
        """Whether the daemon keeps the key itself, or its callers hand it over."""
        ...

    def is_locked(self, space_id: str, /) -> bool:
        """Whether the database cannot be opened before a device has handed over its key."""
        ...

    def needed_epochs(self, space_id: str, epoch: int, /) -> list[int]:
        """The epochs whose database keys the daemon wants now: to open the database, or to change to a new key.

        Args:
            epoch: the roster's newest, 0 where there is none.
        """
        ...
