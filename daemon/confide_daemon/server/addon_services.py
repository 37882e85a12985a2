"""What add-ons do beside the sessions, all of it as one; none that breaks harms another, or the daemon."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from confide_crypto.errors import where
from confide_crypto.transport.open_channel import Connection
from confide_daemon.addons import Service
from confide_daemon.documents.changes import DocumentChange
from confide_daemon.spaces.part import unharmed

T = TypeVar("T")
log = logging.getLogger(__name__)

BROKEN: Final = "addons"
"""The word of `/health` for an add-on that cannot say how it is."""


class AddonServices:
    """One for each daemon, from `open` to `close`."""

    def __init__(self, services: Sequence[Service]) -> None:
        self._services = tuple(services)
        self._told: set[tuple[Service, str]] = set()

    def _ask(self, what: str, ask: Callable[[Service], T], otherwise: T) -> list[T]:
        """What each says; `otherwise` for one that breaks, of which the log tells once, since some are asked five times a second."""
        found = []
        for service in self._services:
            try:
                found.append(ask(service))
            except Exception as error:
                if (service, what) not in self._told:
                    self._told.add((service, what))
                    log.error("%s of %s broke: %s", what, type(service).__name__, where(error))
                found.append(otherwise)
        return found

    async def open(self) -> None:
        """Begin. Raises ConfideError: one cannot, so the daemon does not start."""
        for service in self._services:
            await service.open()

    async def close(self) -> None:
        """End what was begun."""
        for service in reversed(self._services):
            await unharmed(service.close(), "closing a service")

    @property
    def is_busy(self) -> bool:
        """Whether something is under way that an end of the daemon would cut off."""
        return any(self._ask("is_busy", lambda one: one.is_busy, False))

    @property
    def is_backed_up(self) -> bool | None:
        """Whether there is a proven backup that is young enough; None: nobody knows."""
        known = [one for one in self._ask("is_backed_up", lambda one: one.is_backed_up, None) if one is not None]
        return any(known) if known else None

    def health_problems(self) -> set[str]:
        """What of them does not work as it should, in words for `/health`."""
        return set[str]().union(*self._ask("health_problems", lambda one: one.health_problems(), {BROKEN}))

    def changed(self, space_id: str, change: DocumentChange) -> None:
        """A document of the space has a new revision."""
        self._ask("changed", lambda one: one.changed(space_id, change), None)

    def elsewhere(self, space_id: str) -> None:
        """Another node holds the space from now on."""
        self._ask("elsewhere", lambda one: one.elsewhere(space_id), None)

    def revocations_written(self, files: Sequence[Path]) -> None:
        """The keys of machines that may not connect any more were written into these files."""
        self._ask("revocations_written", lambda one: one.revocations_written(files), None)

    async def settle(self, space_id: str) -> None:
        """Wait until nothing runs in the space that was begun before."""
        for service in self._services:
            await service.settle(space_id)

    @property
    def answers_callers(self) -> bool:
        """Whether one answers callers that another node passes on."""
        return any(service.answers_callers for service in self._services)

    def serve(self, connection: Connection) -> Awaitable[None]:
        """Answer what another node passes on for the caller of this channel, until it ends."""
        return next(one for one in self._services if one.answers_callers).serve(connection)
