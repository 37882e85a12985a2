"""The daemon: serves a session on every connection whose peer has proven an enrolled key, until it
is stopped.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from confide_crypto.errors import ConfideError, RequestError, where
from confide_crypto.keys.identity import format_daemon_key
from confide_crypto.limits import Timers
from confide_crypto.transport.open_channel import Authorize, Connection
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_daemon import __version__
from confide_daemon.access.audit import PAUSE_S, SHARED_PAUSE_S, AuditLog
from confide_daemon.access.enrolled_callers import Caller
from confide_daemon.access.registry import Registry, RegistryState
from confide_daemon.access.revocations import Revocations
from confide_daemon.addons import Addon, Gauges, Peers, Verbs
from confide_daemon.config import DaemonConfig
from confide_daemon.datadir import instance
from confide_daemon.datadir.daemon_keys import Keys, LiveKeys
from confide_daemon.documents.changes import DocumentChange
from confide_daemon.errors import FencedError, LockedError
from confide_daemon.sealing.rosters import RosterDesk
from confide_daemon.server.addon_services import AddonServices
from confide_daemon.server.listening.admission import Admission
from confide_daemon.server.listening.health_endpoint import Answers
from confide_daemon.server.listening.listener import SocketListener
from confide_daemon.server.listening.refused_connections import Refusals
from confide_daemon.server.operator.exposition import Exposition
from confide_daemon.server.operator.job_runner import Work
from confide_daemon.server.operator.operator_service import OperatorService
from confide_daemon.server.rates import Rate
from confide_daemon.server.session import Session
from confide_daemon.spaces.maintenance import LOOK_S
from confide_daemon.spaces.pool import Spaces, SpacesHost
from confide_daemon.spaces.space import Space

log = logging.getLogger(__name__)

# Delay until a change by another process (such as a revoked caller) is seen. A check costs a
# microsecond.
REGISTRY_POLL_S = 0.2
STOP_DEADLINE_S = 10.0
# Attempts to open a space, each of which another node may win; after them the device must
# reconnect.
OPENED_AT_ONCE = 3
# A proxy sends its first request at once; a caller that sent none by then never will.
EXPLAIN_S = 10.0
DISK: Final = "disk"
"""The problem that `/health` reports while the disk is nearly full."""


@dataclass(frozen=True, slots=True)
class Listen:
    """The address to listen on, and how long the daemon may be idle before it ends."""

    host: str
    port: int  # 0 takes a free one
    idle_exit_s: float | None = None  # end after this many seconds without a connection; None never ends


class Daemon(SpacesHost):
    """A running daemon; `run` serves until it is stopped.

    Attributes:
        config_file: path of the configuration, which backups include.
        is_on_demand: True if the proxy on this computer started the daemon.
        addons: the add-ons that extend sessions or have services of their own.
        revocations: the file outside the data folder that also records revoked keys.
        callers: decides which keys may connect.
        desk: the device rosters of all spaces.
        services: the add-ons' services.
        peers: other daemons that serve the same spaces.
    """

    def __init__(
        self,
        state: RegistryState,
        config: DaemonConfig,
        spaces: Spaces,
        *,
        timers: Timers | None = None,
        revocations: Revocations | None = None,
        exposition: Exposition | None = None,
        config_file: Path | None = None,
        is_on_demand: bool = False,
        addons: Sequence[Addon] = (),
    ) -> None:
        """Prepare the daemon. `exposition` serves the metrics over TCP, opened and closed with the
        daemon.
        """
        self.state, self.spaces, self.addons = state, spaces, addons
        self.config, self.config_file, self.is_on_demand = config, config_file, is_on_demand
        self.timers = timers or Timers.every(config.server.keepalive_s)
        self.revocations = revocations
        self.refusals = Refusals()
        self.sessions: set[Session] = set()
        self._refused_connections: set[Connection] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self._keys = LiveKeys(state.folder, state.keys)
        self._keys_complaint = self._registry_complaint = ""
        # A thread of its own, so that a revocation never waits for a busy thread pool.
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="confide-registry")
        pause_s = PAUSE_S if state.registry.shared is None else SHARED_PAUSE_S
        self._audit = AuditLog(state.registry.transaction, pause_s=pause_s)
        self._work = Work(state.registry, spaces)
        self.operator = OperatorService(self, exposition)
        self.desk = RosterDesk(state.registry, spaces.rosters)
        self._admission = Admission(self, self.refusals, self._audit)
        self.callers = self._admission.callers
        self._listener = SocketListener(self, self.callers, self.let_in, Answers(self))
        self.services = AddonServices([found for addon in addons if (found := addon.service(self)) is not None])
        self.peers = next((peers for addon in addons if (peers := addon.peers(self)) is not None), Peers())
        spaces.host = self

    @property
    def registry(self) -> Registry:
        """The registry of keys that may connect."""
        return self.state.registry

    @property
    def answers_callers(self) -> bool:
        """True if a service can answer requests that another node forwards."""
        return self.services.answers_callers

    @property
    def is_stopping(self) -> bool:
        """True once the daemon is stopping, so that no new work may begin."""
        return self._stop.is_set()

    def keys(self) -> Keys:
        """Return the daemon keys that are valid now."""
        return self._keys.in_force()

    def listener(self, authorize: Authorize, on_open: Callable[[Connection], Awaitable[None]]) -> SocketListener:
        """Return a separate listening socket for keys that `authorize` accepts. `on_open` serves
        each opened channel.
        """
        return SocketListener(self, authorize, on_open)

    @property
    def verbs(self) -> Verbs:
        """The control socket's table of requests, to which other code adds more."""
        return self.operator.control

    @property
    def gauges(self) -> Gauges:
        """The daemon's metrics, to which other code adds more."""
        return self.operator.metrics

    def announce(self, space_id: str, change: DocumentChange) -> None:
        """Announce a revision that no device made to all devices of a space and to all services."""
        for session in self.sessions:
            if session.caller.space_id == space_id:
                session.announce(change)
        self.services.on_change(space_id, change)

    def health_problems(self) -> set[str]:
        """Return the daemon's current problems, in the words that `/health` uses."""
        found = self.spaces.health_problems() | self.services.health_problems() | self.peers.health_problems()
        found |= {"storage"} if self._registry_complaint else set()
        return found | ({DISK} if self.spaces.disk.is_low else set())

    def around(self, space_id: str) -> tuple[int | None, bool | None]:
        """Return the number of credentials stored in clear in a space (None: unknown), and True if
        a verified backup exists (None: unknown).
        """
        counted = self.desk.unsealed.of(space_id)
        return None if counted is None else counted.findings, self.services.is_backed_up

    def announce_news(self, space_id: str) -> None:
        """Notify all devices of a space that its state has changed: it was unlocked, or needs a
        key.
        """
        self.desk.announce(space_id)

    def stop(self) -> None:
        """Stop the daemon after running calls have finished."""
        self._stop.set()

    async def run(self, listen: Listen, *, on_ready: Callable[[str], None] | None = None) -> None:
        """Serve until the daemon is stopped. `on_ready` is called with the address
        (`confide://host:port`) once connections are accepted.

        Raises ListenError if the address cannot be bound, OvertakenError if nodes of a newer
        version take over.
        """
        # Before the address is published, since its reader may stop the daemon at once. SIGHUP
        # stops it too, unless it was started to outlive its terminal (nohup).
        hang_up = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
        for number in (signal.SIGTERM, signal.SIGINT, *hang_up):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        # Before any connection is accepted, or a change of a caller's rights could be missed.
        self._seen = (self.state.registry.version(), self.state.registry.last_change())
        await self.peers.confirm()
        await self._listener.open(listen.host, listen.port)
        url, (self._bound, _) = self._listener.url, self._listener.address
        auditing = asyncio.create_task(self._audit.run())
        looking = asyncio.create_task(self._look_at_spaces())
        self._work.begin()
        try:
            await self.peers.open()
            await self.operator.open()
            await self.services.open()
            await self._write_address(url)
            log.info("confided %s listens on %s", __version__, instance.listen_address(url, self._bound))
            self.operator.began()
            if on_ready:
                on_ready(url)
            await self._poll(url, listen.idle_exit_s)
        finally:
            self._stop.set()  # a connection between its welcome and its session checks this and stops
            instance.remove(self.state.folder.address)
            await self.operator.close()
            await self.services.close()
            self._listener.stop_accepting()
            await self._close_sessions()
            await self._listener.close()
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            await self._work.close()
            await self.spaces.close()
            await self.peers.close()  # until here it announced to other nodes that its spaces become free
            auditing.cancel()
            await asyncio.gather(auditing, *self._leaving, return_exceptions=True)
            await self._audit.flush()
            self._reading.shutdown()
            self.refusals.report(is_last=True)
            log.info("confided ended")
        if self.peers.failure is not None:
            raise self.peers.failure

    def why_unready(self) -> str | None:
        """Return the reason why the daemon accepts no sessions now, or None if it does."""
        if self._stop.is_set():
            return "stopping"
        return self.peers.why_unready()

    async def is_cut_off(self) -> bool:
        """Return True if this node may lack changes by other nodes; it then admits no new callers."""
        return await self.peers.is_cut_off()

    async def let_in(self, connection: Connection, *, is_passed_on: bool = False, is_by_http: bool = False) -> None:
        """Serve an opened channel until it ends, with the rights of its caller.

        Args:
            is_passed_on: True if another node forwards the caller's channel.
            is_by_http: True if another node forwards a caller's HTTP requests.
        """
        if is_by_http:
            await self._admission.let_in_node(connection, self.services.serve)
            return
        await self._admission.let_in(connection, partial(self._serve, is_passed_on=is_passed_on))

    async def _serve(self, connection: Connection, caller: Caller, rate: Rate, *, is_passed_on: bool) -> None:
        try:
            await self._serve_here_or_elsewhere(connection, caller, rate, is_passed_on=is_passed_on)
        except ConfideError as error:
            log.error("space %s cannot be opened: %s", caller.space_id, error, extra={"space": caller.space_id})
            await self._explain(connection, error, rate)

    async def _serve_here_or_elsewhere(
        self, connection: Connection, caller: Caller, rate: Rate, *, is_passed_on: bool
    ) -> None:
        """Serve a caller here, or forward it to the node that holds the space.

        Raises StorageError if the space cannot be opened.
        """
        for _ in range(OPENED_AT_ONCE):
            # A forwarded connection is not forwarded again: two nodes that each name the other as
            # holder would loop.
            if not is_passed_on and await self.peers.pass_on(connection, caller.space_id, rate):
                return
            try:
                with self.spaces.mark_used(caller.space_id):
                    await self._serve_caller(connection, caller, rate)
                return
            except FencedError:
                if self.peers.ways is None:
                    raise
        await connection.close("restart")

    async def _serve_caller(self, connection: Connection, caller: Caller, rate: Rate) -> None:
        """Run a caller's session. Raises StorageError if its space cannot be opened."""
        space: Space | None = None
        with suppress(LockedError):
            async with self.spaces.hold(caller.space_id) as space:
                pass
        # A caller that was revoked while the space was opening had no session that could be closed.
        current = self.callers.current(connection.peer_key)
        if current is None or current.space_id != caller.space_id:
            # The caller may also have been given another space meanwhile.
            await connection.close(self.callers.close_reason(connection.peer_key))
            return
        if self._stop.is_set():
            await connection.close("shutdown")
            return
        await self._run(Session(connection, current, space, self, rate))

    async def _explain(self, connection: Connection, error: ConfideError, rate: Rate) -> None:
        """Answer each request of this connection with the reason why its space cannot be used, for
        the user; then close.
        """
        if self._stop.is_set():  # the caller got its goodbye already, and is not waited for
            await connection.close("shutdown")
            return

        async def refuse(_op: str, _body: dict[str, object]) -> dict[str, object]:
            raise RequestError("unavailable", f"the daemon cannot use this device's space: {error}", error.hint)

        self._refused_connections.add(connection)
        try:
            async with asyncio.timeout(EXPLAIN_S):
                await connection.serve(on_request=refuse, toll=rate)
        except (ConfideError, TimeoutError):
            pass
        finally:
            self._refused_connections.discard(connection)
            await connection.close("unavailable")

    async def _run(self, session: Session) -> None:
        connection = session.connection
        self.sessions.add(session)
        self._audit.log_connection(session.caller.alias, connection.peer_key, connection.session_id)
        ending = "closed"
        try:
            await session.run()
        except ConfideError as error:
            ending = "lost"
            log.info("session %s: %s", connection.session_id, type(error).__name__)
        except Exception as error:
            ending = "broken"
            # Log every broken session, but not the error's text, which may quote content.
            log.error("session %s broke: %s", connection.session_id, where(error))
            await connection.close("internal")
        finally:
            self.sessions.discard(session)
            self._audit.log_end(
                session.caller.alias, connection.peer_key, connection.session_id, session.end_reason or ending
            )

    async def _write_address(self, url: str) -> None:
        key = format_daemon_key(self._keys.in_force().current.static_key)
        await asyncio.to_thread(
            instance.write,
            self.state.folder.address,
            instance.Address(url, key, os.getpid(), __version__, self._bound),
        )

    async def _poll(self, url: str, idle_exit_s: float | None) -> None:
        """Poll the registry and the keys for changes by other processes, and end the daemon when
        idle.
        """
        version, change = self._seen
        busy_at = time.monotonic()
        while not self._stop.is_set():
            due = time.monotonic() + REGISTRY_POLL_S
            try:
                async with asyncio.timeout(REGISTRY_POLL_S):
                    await self._stop.wait()
            except TimeoutError:
                self.operator.lag.note(time.monotonic() - due)
            version, change = await self._follow_registry(version, change)
            self._end_expired()
            self.refusals.report()
            if self._keys.is_stale():
                await self._follow_keys(url)
            if self._admission.is_anybody_in or self._work.is_busy or self.services.is_busy:
                busy_at = time.monotonic()
            elif idle_exit_s is not None and time.monotonic() - busy_at >= idle_exit_s:
                log.info("no client connected for %.0f s", idle_exit_s)
                return

    async def _follow_registry(self, version: int, change: int) -> tuple[int, int]:
        """Apply changes of the registry; return its version and the number of the last applied
        change.

        If the registry cannot be read, the next poll tries again. Until then new connections are
        refused and existing ones stay.
        """
        try:
            now = self.state.registry.version()
            if now == version:
                self._registry_complaint = ""
                return version, change
            change = await self._apply_registry(change)
        except ConfideError as error:
            raise_if_cancelled()
            self._complain(f"the registry cannot be read, so who is connected stays: {error}")
            return version, change
        except Exception as error:
            raise_if_cancelled()
            self._complain(f"reading the registry broke, so who is connected stays: {where(error)}")
            return version, change
        self._registry_complaint = ""
        self._work.look()
        await self._note_revocations()
        return now, change

    def _complain(self, complaint: str) -> None:
        """Log a problem with the registry once, however often it recurs."""
        if complaint != self._registry_complaint:
            self._registry_complaint = complaint
            log.error("%s", complaint)

    async def _look_at_spaces(self) -> None:
        """Check all spaces regularly, so that `/health` covers spaces that no caller has used since
        the start.
        """
        while True:
            try:
                await self.spaces.look_at_all()
            except ConfideError as error:
                raise_if_cancelled()
                log.error("the spaces could not be looked at: %s", error)
            except Exception as error:
                raise_if_cancelled()
                log.error("looking at the spaces broke: %s", where(error))
            await asyncio.sleep(LOOK_S)

    async def _follow_keys(self, url: str) -> None:
        """Load a key rotation that began or ended. Open sessions stay: they were authenticated with
        the key of their time.
        """
        try:
            if await asyncio.to_thread(self._keys.refresh):
                log.info("the daemon's key was rotated, or its old one ended")
                await self._write_address(url)
            self._keys_complaint = ""
        except (ConfideError, OSError) as error:
            # Every poll retries; log the same problem once.
            if str(error) != self._keys_complaint:
                self._keys_complaint = str(error)
                log.error("the key files cannot be used, so the keys stay as they were: %s", error)

    async def _note_revocations(self) -> None:
        if self.revocations is not None:
            try:
                changed = await asyncio.to_thread(self.revocations.keep, self.state.registry)
                self.services.on_revocations_written(changed)
            except ConfideError as error:
                log.error("%s", error)

    async def _apply_registry(self, number: int) -> int:
        """Give each session its caller's current rights if they changed after change `number`;
        return the newest number.
        """
        connected = {session.connection.peer_key for session in self.sessions}
        passed_on = self.peers.forwarded_keys
        newest, changed = await asyncio.get_running_loop().run_in_executor(
            self._reading, self.callers.changes_since, number, connected | passed_on
        )
        for key in passed_on:
            if key in changed and changed[key] is None:
                self.peers.shut_out(key, self.callers.close_reason(key))
        for session in self.sessions:
            key = session.connection.peer_key
            if key in connected and key not in changed:
                continue
            # A session that began during the query may have read its rights before the change.
            caller = changed[key] if key in changed else self.callers.current(key)
            if caller is not None and caller.space_id == session.caller.space_id:
                session.caller = caller
            else:
                self._shut_out(session, self.callers.close_reason(session.connection.peer_key))
        return newest

    def _end_expired(self) -> None:
        now = self.state.registry.clock()
        for session in self.sessions:
            if session.caller.refusal_reason(now) == "expired":
                self._shut_out(session, "expired")

    def _shut_out(self, session: Session, word: str) -> None:
        """End a session in the background, so that a peer that does not read its CLOSE delays no
        other.
        """
        if session.end_reason is None:
            name, alias = session.connection.session_id, session.caller.alias
            extra = {"event": f"session shut out: {word}", "session": name, "space": session.caller.space_id}
            log.info("session %s: %s is shut out: %s", name, alias, word, extra=extra)
            session.end_reason = word
            self._in_background(session.shut_out(word))

    def is_live(self, public_key: bytes, session_id: str) -> bool:
        """Return True if this key has a live session with this id, either here or forwarded to
        another node.
        """
        is_here = any(
            session.connection.session_id == session_id
            and session.connection.peer_key == public_key
            and session.end_reason is None
            for session in self.sessions
        )
        return is_here or self.peers.is_live(public_key, session_id)

    def send_elsewhere(self, space_id: str) -> None:
        """End the sessions of a space that another node serves now, so that their devices reconnect
        there.
        """
        if self.peers.ways is None:
            return
        for session in self.sessions:
            if session.caller.space_id == space_id and session.end_reason is None:
                self._in_background(session.close("restart"))
        self.services.on_space_lost(space_id)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that only the daemon's end waits for."""
        task = asyncio.create_task(work)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _close_sessions(self) -> None:
        word = self.peers.goodbye
        goodbyes = [session.close(word) for session in self.sessions]
        goodbyes += [connection.close(word) for connection in self._refused_connections]
        goodbyes.append(self.peers.leave())
        closing = [asyncio.create_task(goodbye) for goodbye in goodbyes]
        if not closing:
            return
        _, late = await asyncio.wait(closing, timeout=STOP_DEADLINE_S)
        for task in late:
            task.cancel()
