"""Admission of callers: enrolled keys, within their limits of connections and rate."""

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
    """The interface of the daemon that admission uses."""

    @property
    def state(self) -> RegistryState:
        """The opened data folder."""

    @property
    def config(self) -> DaemonConfig:
        """The configuration, with its limits on sessions."""

    async def is_cut_off(self) -> bool:
        """Return True if changes by other nodes may be missing here, so that no new connection may be
        accepted.
        """

    def is_live(self, key: bytes, session_id: str) -> bool:
        """Return True if the key has a live session with this id, here or forwarded to another node."""


class Admission(Gate):
    """The admission of one daemon, shared by all addresses it listens on. Use on the event loop
    only.
    """

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
        """True if the limit on sessions is reached."""
        return self._open.total() >= self._most

    def sessions_of(self, key: bytes) -> int:
        """Return the number of live connections of a key."""
        return self._open[key]

    def is_live(self, key: bytes, session_id: str) -> bool:
        """Return True if a key has a live session with this id, here or on another node."""
        return self._daemon.is_live(key, session_id)

    async def is_cut_off(self) -> bool:
        """Return True if changes by other nodes may be unknown here."""
        return await self._daemon.is_cut_off()

    async def pass_connection(self, key: bytes) -> bool:
        """Wait for the rate limit of a key's new connections; return False if the wait is too long."""
        return await self.rates.pass_connection(key)

    def log_refusal(self, key: bytes, reason: str) -> None:
        """Write to the audit log that an authenticated key was refused."""
        self._audit.log_refusal(key, reason)

    @property
    def is_anybody_in(self) -> bool:
        return bool(self._open)

    async def let_in(self, connection: Connection, serve: Serve) -> None:
        """Count a newly opened channel and run `serve` on it; close one that exceeds the limits."""
        await self._serve_counted(connection, self._let_in(connection, serve))

    async def let_in_node(self, connection: Connection, serve: Callable[[Connection], Awaitable[None]]) -> None:
        """Count and serve a channel on which another node forwards a caller's HTTP requests
        (PROTOCOL.md 12.5).
        """
        await self._serve_counted(connection, serve(connection))

    async def _serve_counted(self, connection: Connection, serving: Awaitable[None]) -> None:
        key = connection.peer_key
        # No await before this line, so that simultaneous handshakes cannot pass the limit together.
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
            await connection.close(self.callers.close_reason(key))
        elif self._is_one_too_many(key, connection.hello):
            await connection.close("busy")
        else:
            with self.rates.of(key) as rate:
                await serve(connection, caller, rate)

    def _is_one_too_many(self, key: bytes, hello: dict[str, object]) -> bool:
        return self._open[key] > self.callers.most_sessions(key, hello) or self._open.total() > self._most
