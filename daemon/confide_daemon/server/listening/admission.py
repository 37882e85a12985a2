"""Whose connections are let in: callers that may connect, as many of each as it may have, at the rate that it may come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from confide_crypto.transport.open_channel import Connection
from confide_daemon.access.audit import AuditLog
from confide_daemon.access.authorization import CallerAuthorization, Gate
from confide_daemon.access.enrolled_callers import Caller
from confide_daemon.access.registry import RegistryState
from confide_daemon.config import DaemonConfig
from confide_daemon.server.listening.refused_connections import Refusals
from confide_daemon.server.rates import Rate, Rates

Serve = Callable[[Connection, Caller, Rate], Awaitable[None]]


class Admitting(Protocol):
    """The daemon, as it is seen by who lets its callers in."""

    @property
    def state(self) -> RegistryState:
        """The data folder, opened."""

    @property
    def config(self) -> DaemonConfig:
        """How many may be in."""

    async def is_cut_off(self) -> bool:
        """As `Gate.is_cut_off`."""

    def is_live(self, key: bytes, session_id: str) -> bool:
        """As `Gate.is_live`."""


class Admission(Gate):
    """One for a daemon, for all the addresses at which it listens; on the event loop."""

    def __init__(self, daemon: Admitting, refusals: Refusals, audit: AuditLog) -> None:
        self._daemon = daemon
        self._refusals = refusals
        self._audit = audit
        self._most: Final = daemon.config.server.max_sessions
        self._open: Counter[bytes] = Counter()
        self.rates = Rates()
        most_of_each = daemon.config.server.max_sessions_per_caller
        self.callers = CallerAuthorization(
            daemon.state.registry, daemon.state.folder.authorized, self, max_sessions=most_of_each
        )

    @property
    def is_full(self) -> bool:
        """Whether nobody fits in."""
        return self._open.total() >= self._most

    def sessions_of(self, key: bytes) -> int:
        """How many live connections a key has."""
        return self._open[key]

    def is_live(self, key: bytes, session_id: str) -> bool:
        """Whether a key has a live session of this id, here or at another node."""
        return self._daemon.is_live(key, session_id)

    async def is_cut_off(self) -> bool:
        """Whether what other nodes have changed may not be known here."""
        return await self._daemon.is_cut_off()

    async def pass_connection(self, key: bytes) -> bool:
        """Wait until a key may come in once more, at the rate that it may come."""
        return await self.rates.pass_connection(key)

    def refused(self, key: bytes, reason: str) -> None:
        """Have it in the audit log that a key may not come in."""
        self._audit.refused(key, reason)

    @property
    def is_anybody_in(self) -> bool:
        return bool(self._open)

    async def let_in(self, connection: Connection, serve: Serve) -> None:
        """Count a channel that has just been opened, and serve it for as long as `serve` takes; one too many is closed."""
        await self._counted(connection, self._let_in(connection, serve))

    async def let_in_node(self, connection: Connection, serve: Callable[[Connection], Awaitable[None]]) -> None:
        """The same of a channel by which another node passes on what a caller asks by HTTP (PROTOCOL.md 12.5)."""
        await self._counted(connection, serve(connection))

    async def _counted(self, connection: Connection, serving: Awaitable[None]) -> None:
        key = connection.peer_key
        # Counted from here without a pause, so that many handshakes at once cannot slip past the limit together.
        self._open[key] += 1
        try:
            await serving
        except Exception as error:
            self._refusals.note(error)
            await connection.close("internal")
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]

    async def _let_in(self, connection: Connection, serve: Serve) -> None:
        key = connection.peer_key
        caller = self.callers.current(key)
        if caller is None:
            await connection.close(self.callers.why_closed(key))
        elif self._is_one_too_many(key, connection.hello):
            await connection.close("busy")
        else:
            with self.rates.of(key) as rate:
                await serve(connection, caller, rate)

    def _is_one_too_many(self, key: bytes, hello: dict[str, object]) -> bool:
        return self._open[key] > self.callers.most_sessions(key, hello) or self._open.total() > self._most
