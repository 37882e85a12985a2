"""Decides which callers may connect: those with an enrolled key, within their limits of connections
and rate.
"""

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
    """The daemon's methods that admission uses."""

    @property
    def state(self) -> RegistryState:
        """The opened data folder of the daemon."""

    @property
    def config(self) -> DaemonConfig:
        """The configuration, with its limits on sessions."""

    async def is_cut_off(self) -> bool:
        """Return True if this node may lack changes by other nodes, so that it must not accept
        connections.
        """

    def is_live(self, key: bytes, session_id: str) -> bool:
        """Return True if this key has a live session with this id, either here or forwarded to
        another node.
        """


class Admission(Gate):
    """Admits callers for all addresses that one daemon listens on. Use it on the event loop only."""

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
        """True if the daemon has as many sessions as it may have."""
        return self._open.total() >= self._most

    def sessions_of(self, key: bytes) -> int:
        """Return how many connections this key has now."""
        return self._open[key]

    def is_live(self, key: bytes, session_id: str) -> bool:
        """Return True if a key has a live session with this id, here or on another node."""
        return self._daemon.is_live(key, session_id)

    async def is_cut_off(self) -> bool:
        """Return True if this node may lack changes by other nodes."""
        return await self._daemon.is_cut_off()

    async def pass_connection(self, key: bytes) -> bool:
        """Wait as the rate limit of this key's new connections requires; return False at once if
        the wait would be too long.
        """
        return await self.rates.pass_connection(key)

    def log_refusal(self, key: bytes, reason: str) -> None:
        """Record in the audit log that a peer with this key was refused, although it proved the
        key.
        """
        self._audit.log_refusal(key, reason)

    @property
    def is_anybody_in(self) -> bool:
        return bool(self._open)

    async def let_in(self, connection: Connection, serve: Serve) -> None:
        """Serve a newly opened channel with `serve`, and count it while it lasts. A channel above
        the limits is closed instead.
        """
        await self._serve_counted(connection, self._let_in(connection, serve))

    async def let_in_node(self, connection: Connection, serve: Callable[[Connection], Awaitable[None]]) -> None:
        """Serve a channel on which another node forwards HTTP requests of a caller (PROTOCOL.md
        12.5), and count it while it lasts.
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
