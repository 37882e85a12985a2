"""All add-ons' services together. A service that fails harms neither the others nor the daemon."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from confide_crypto.errors import where
from confide_crypto.transport.open_channel import Connection
from confide_daemon.addons import HeldCopy, Service
from confide_daemon.documents.changes import DocumentChange
from confide_daemon.spaces.part import run_safely

T = TypeVar("T")
log = logging.getLogger(__name__)

BROKEN: Final = "addons"
"""The problem that `/health` reports for an add-on that fails to report its health."""


class AddonServices:
    """Calls the services of all add-ons in one daemon, from `open` to `close`."""

    def __init__(self, services: Sequence[Service]) -> None:
        self._services = tuple(services)
        self._reported: set[tuple[Service, str]] = set()

    def _ask(self, what: str, ask: Callable[[Service], T], otherwise: T) -> list[T]:
        """Return each service's answer, or `otherwise` for one that raises.

        The log reports a failure once: some questions are asked five times a second.
        """
        found = []
        for service in self._services:
            try:
                found.append(ask(service))
            except Exception as error:
                if (service, what) not in self._reported:
                    self._reported.add((service, what))
                    log.error("%s of %s broke: %s", what, type(service).__name__, where(error))
                found.append(otherwise)
        return found

    async def open(self) -> None:
        """Start all services. Raises ConfideError if one fails, so that the daemon does not start."""
        for service in self._services:
            await service.open()

    async def close(self) -> None:
        """Stop all services, in reverse order."""
        for service in reversed(self._services):
            await run_safely(service.close(), "closing a service")

    @property
    def is_busy(self) -> bool:
        """True if a service has work under way that should finish before the daemon ends."""
        return any(self._ask("is_busy", lambda one: one.is_busy, False))

    @property
    def is_backed_up(self) -> bool | None:
        """True if a recent verified backup exists, False if none does; None if no service makes
        backups.
        """
        known = [one for one in self._ask("is_backed_up", lambda one: one.is_backed_up, None) if one is not None]
        return any(known) if known else None

    def health_problems(self) -> set[str]:
        """Return the problems of all services, in the words that `/health` uses."""
        return set[str]().union(*self._ask("health_problems", lambda one: one.health_problems(), {BROKEN}))

    def on_change(self, space_id: str, change: DocumentChange) -> None:
        """Notify all services of a new revision of a document."""
        self._ask("on_change", lambda one: one.on_change(space_id, change), None)

    def on_space_lost(self, space_id: str) -> None:
        """Notify all services that another node serves the space now."""
        self._ask("on_space_lost", lambda one: one.on_space_lost(space_id), None)

    def copies_of(self, space_id: str, before: float) -> list[HeldCopy]:
        """Return the services' copies of a space that were made before a time (seconds since 1970),
        such as backups. Blocks.
        """
        failed = [HeldCopy("an add-on", "", "not known")]
        found = self._ask("copies_of", lambda one: [*one.copies_of(space_id, before)], failed)
        return [copy for each in found for copy in each]

    async def drop_copies(self, space_id: str, before: float) -> list[str]:
        """Remove the space from all copies that were made before a time (seconds since 1970);
        return the names of those copies. Raises ConfideError if a copy cannot be changed.
        """
        return [name for service in self._services for name in await service.drop_copies(space_id, before)]

    def on_records_written(self, space_id: str) -> None:
        """Notify all services that the space's file of forgotten texts has changed."""
        self._ask("on_records_written", lambda one: one.on_records_written(space_id), None)

    def on_revocations_written(self, files: Sequence[Path]) -> None:
        """Notify all services that these files now list revoked keys of devices."""
        self._ask("on_revocations_written", lambda one: one.on_revocations_written(files), None)

    async def settle(self, space_id: str) -> None:
        """Wait until everything that the services have begun in the space is finished."""
        for service in self._services:
            await service.settle(space_id)

    @property
    def answers_callers(self) -> bool:
        """True if a service can answer requests that another node forwards."""
        return any(service.answers_callers for service in self._services)

    def serve(self, connection: Connection) -> Awaitable[None]:
        """Answer the requests that another node forwards on this channel, until the channel ends."""
        return next(one for one in self._services if one.answers_callers).serve(connection)
