"""Whose connections are let in: callers that may connect, as many of each as it may have, at the rate that it may come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

from confide_crypto.transport.open import Connection
from confide_daemon.access.authorization import Callers
from confide_daemon.access.callers import Caller
from confide_daemon.access.registry import State
from confide_daemon.config import ServerConfig
from confide_daemon.server.listening.refusals import Refusals
from confide_daemon.server.rates import Rate, Rates

Serve = Callable[[Connection, Caller, Rate], Awaitable[None]]


class Admission:
    """One for a daemon, for all the addresses at which it listens; on the event loop."""

    def __init__(
        self,
        state: State,
        config: ServerConfig,
        refusals: Refusals,
        *,
        is_cut_off: Callable[[], Awaitable[bool]],
        is_live: Callable[[bytes, str], bool],
        on_refused: Callable[[bytes, str], None],
    ) -> None:
        """`is_cut_off`, `is_live` and `on_refused` as `Callers` has them."""
        self._refusals = refusals
        self._most: Final = config.max_sessions
        self._open: Counter[bytes] = Counter()
        self.rates = Rates()
        self.callers = Callers(
            state.registry,
            state.folder.authorized,
            sessions_of=lambda key: self._open[key],
            max_sessions=config.max_sessions_per_caller,
            is_full=lambda: self._open.total() >= self._most,
            is_cut_off=is_cut_off,
            is_live=is_live,
            pass_connection=self.rates.pass_connection,
            on_refused=on_refused,
        )

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

    def _is_one_too_many(self, key: bytes, hello: dict[str, Any]) -> bool:
        return self._open[key] > self.callers.most_sessions(key, hello) or self._open.total() > self._most
