"""The daemon: a session for every connection that has proven an enrolled key, until it is told to stop."""

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

# How soon a change made by another process (a revoked caller) is seen. Asking costs a microsecond.
REGISTRY_POLL_S = 0.2
STOP_DEADLINE_S = 10.0
# How often a space may be another node's by the time that it is opened here; then its machine comes again.
OPENED_AT_ONCE = 3
# A proxy asks at once; whoever has not asked by then will not.
EXPLAIN_S = 10.0
DISK: Final = "disk"
"""The word of `/health` while there is little room."""


@dataclass(frozen=True, slots=True)
class Listen:
    """Where to listen, and for how long without anybody."""

    host: str
    port: int  # 0 takes a free one
    idle_exit_s: float | None = None  # end after this many seconds without a connection; None never ends


class Daemon(SpacesHost):
    """A running daemon; `run` serves until it is told to stop.

    Attributes:
        config_file: goes into backups.
        is_on_demand: it was started by the machine that it serves.
        addons: that have something in each session, or beside them.
        revocations: where keys that end are noted as well.
        callers: who may come in.
        desk: the devices of all spaces.
        services: what add-ons do beside the sessions.
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
        """`exposition`: where metrics are had over TCP; opened and closed with the daemon."""
        self.state, self.spaces, self.addons = state, spaces, addons
        self.config, self.config_file, self.is_on_demand = config, config_file, is_on_demand
        self.timers = timers or Timers.every(config.server.keepalive_s)
        self.revocations = revocations
        self.refusals = Refusals()
        self.sessions: set[Session] = set()
        self._explained: set[Connection] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self._keys = LiveKeys(state.folder, state.keys)
        self._keys_complaint = self._registry_complaint = ""
        # Of its own: a revocation must not wait until one of the others is free.
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
        """Who may connect."""
        return self.state.registry

    @property
    def answers_callers(self) -> bool:
        """Whether a service answers callers that another node passes on."""
        return self.services.answers_callers

    @property
    def is_stopping(self) -> bool:
        """Whether nothing is to be begun any more."""
        return self._stop.is_set()

    def keys(self) -> Keys:
        """Return those that are in force."""
        return self._keys.in_force()

    def listener(self, authorize: Authorize, on_open: Callable[[Connection], Awaitable[None]]) -> SocketListener:
        """Return a socket of its own, for whom `authorize` lets in."""
        return SocketListener(self, authorize, on_open)

    @property
    def verbs(self) -> Verbs:
        """What commands may ask of it."""
        return self.operator.control

    @property
    def gauges(self) -> Gauges:
        """Its metrics."""
        return self.operator.metrics

    def announce(self, space_id: str, change: DocumentChange) -> None:
        """Tell all machines of a space, and all services, of a revision that none of the machines made."""
        for session in self.sessions:
            if session.caller.space_id == space_id:
                session.announce(change)
        self.services.changed(space_id, change)

    def health_problems(self) -> set[str]:
        """What does not work as it should, in the words of `/health`."""
        found = self.spaces.health_problems() | self.services.health_problems() | self.peers.health_problems()
        found |= {"storage"} if self._registry_complaint else set()
        return found | ({DISK} if self.spaces.disk.is_low else set())

    def around(self, space_id: str) -> tuple[int | None, bool | None]:
        """Credentials in clear in a space, and whether it has a proven backup, as far as either is known."""
        counted = self.desk.unsealed.of(space_id)
        return None if counted is None else counted.findings, self.services.is_backed_up

    def announce_news(self, space_id: str) -> None:
        """Tell all machines of a space to look again: it is unlocked, or a key is needed."""
        self.desk.announce(space_id)

    def stop(self) -> None:
        """Ask the daemon to end in good order."""
        self._stop.set()

    async def run(self, listen: Listen, *, on_ready: Callable[[str], None] | None = None) -> None:
        """Serve; `on_ready` gets the address (`confide://host:port`) once connections are taken.

        Raises ListenError where the address cannot be bound; OvertakenError: nodes of a newer version are to go on in its place.
        """
        # First of all: whoever reads the address may stop the daemon that same moment.
        # Its terminal goes too, unless whoever has started it says that it is to outlive that (nohup).
        hang_up = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
        for number in (signal.SIGTERM, signal.SIGINT, *hang_up):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        # Before anybody is let in, whose rights could change unseen.
        self._seen = (self.state.registry.version(), self.state.registry.last_change())
        await self.peers.confirm()
        await self._listener.open(listen.host, listen.port)
        url, (self._bound, _) = self._listener.url, self._listener.bound
        auditing = asyncio.create_task(self._audit.run())
        looking = asyncio.create_task(self._look_at_spaces())
        self._work.begin()
        try:
            await self.peers.open()
            await self.operator.open()
            await self.services.open()
            await self._write_address(url)
            log.info("confided %s listens on %s", __version__, instance.bound(url, self._bound))
            self.operator.began()
            if on_ready:
                on_ready(url)
            await self._until_stopped(url, listen.idle_exit_s)
        finally:
            self._stop.set()  # whoever is between its welcome and its session sees it, and goes no further
            instance.remove(self.state.folder.address)
            await self.operator.close()
            await self.services.close()
            self._listener.shut()
            await self._close_sessions()
            await self._listener.close()
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            await self._work.close()
            await self.spaces.close()
            await self.peers.close()  # until here it has told others that its spaces are about to be free
            auditing.cancel()
            await asyncio.gather(auditing, *self._leaving, return_exceptions=True)
            await self._audit.flush()
            self._reading.shutdown()
            self.refusals.report(is_last=True)
            log.info("confided ended")
        if self.peers.failure is not None:
            raise self.peers.failure

    def why_unready(self) -> str | None:
        """Return why no sessions are taken now; None where they are."""
        if self._stop.is_set():
            return "stopping"
        return self.peers.why_unready()

    async def is_cut_off(self) -> bool:
        """Whether what other nodes have changed may not be known here: then nobody new is let in."""
        return await self.peers.is_cut_off()

    async def let_in(self, connection: Connection, *, is_passed_on: bool = False, is_by_http: bool = False) -> None:
        """Serve a channel until its end, for the caller that it is of."""
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
        """At this node, or at the one that holds the space. Raises StorageError where it cannot be opened."""
        for _ in range(OPENED_AT_ONCE):
            # What a node has passed on is not passed on again: two that take each other for the holder would do so without end.
            if not is_passed_on and await self.peers.pass_on(connection, caller.space_id, rate):
                return
            try:
                with self.spaces.used(caller.space_id):
                    await self._serve_caller(connection, caller, rate)
                return
            except FencedError:
                if self.peers.ways is None:
                    raise
        await connection.close("restart")

    async def _serve_caller(self, connection: Connection, caller: Caller, rate: Rate) -> None:
        """Run the session of a caller. Raises StorageError where its space cannot be opened."""
        space: Space | None = None
        with suppress(LockedError):
            async with self.spaces.held(caller.space_id) as space:
                pass
        # Whoever was revoked while the space was being opened had no session yet that could be closed.
        current = self.callers.current(connection.peer_key)
        if current is None or current.space_id != caller.space_id:
            # It may have been given another space as well: this one is not its own any more.
            await connection.close(self.callers.why_closed(connection.peer_key))
            return
        if self._stop.is_set():
            await connection.close("shutdown")
            return
        await self._run(Session(connection, current, space, self, rate))

    async def _explain(self, connection: Connection, error: ConfideError, rate: Rate) -> None:
        """Answer every request of this connection with why its space cannot be used, so that a person hears it; then close."""
        if self._stop.is_set():  # whoever is told of that was told already, and would not be waited for
            await connection.close("shutdown")
            return

        async def refuse(_op: str, _body: dict[str, object]) -> dict[str, object]:
            raise RequestError("unavailable", f"the daemon cannot use this machine's space: {error}", error.hint)

        self._explained.add(connection)
        try:
            async with asyncio.timeout(EXPLAIN_S):
                await connection.serve(on_request=refuse, toll=rate)
        except (ConfideError, TimeoutError):
            pass
        finally:
            self._explained.discard(connection)
            await connection.close("unavailable")

    async def _run(self, session: Session) -> None:
        connection = session.connection
        self.sessions.add(session)
        self._audit.connected(session.caller.alias, connection.peer_key, connection.session_id)
        ending = "closed"
        try:
            await session.run()
        except ConfideError as error:
            ending = "lost"
            log.info("session %s: %s", connection.session_id, type(error).__name__)
        except Exception as error:
            ending = "broken"
            # One broken session must not go unseen, nor its text (which may quote content) be written down.
            log.error("session %s broke: %s", connection.session_id, where(error))
            await connection.close("internal")
        finally:
            self.sessions.discard(session)
            self._audit.ended(
                session.caller.alias, connection.peer_key, connection.session_id, session.ended_by or ending
            )

    async def _write_address(self, url: str) -> None:
        key = format_daemon_key(self._keys.in_force().current.static_key)
        await asyncio.to_thread(
            instance.write,
            self.state.folder.address,
            instance.Address(url, key, os.getpid(), __version__, self._bound),
        )

    async def _until_stopped(self, url: str, idle_exit_s: float | None) -> None:
        """Watch the registry and the keys for what other processes change, and the clock for idleness."""
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
                log.info("nobody connected for %.0f s", idle_exit_s)
                return

    async def _follow_registry(self, version: int, change: int) -> tuple[int, int]:
        """Apply changes of the registry; return its version and the change number up to which they are applied.

        A registry that cannot be read is read again at the next poll. Until then new machines are refused, and connected ones stay.
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
        """Once for each trouble, however often it is met."""
        if complaint != self._registry_complaint:
            self._registry_complaint = complaint
            log.error("%s", complaint)

    async def _look_at_spaces(self) -> None:
        """Health is not "ok" over a space that nobody has used since the start."""
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
        """Take up a rotation that was begun or ended; sessions that are open stay, they were proven with the key of their time."""
        try:
            if await asyncio.to_thread(self._keys.refresh):
                log.info("the daemon's key was rotated, or its old one ended")
                await self._write_address(url)
            self._keys_complaint = ""
        except (ConfideError, OSError) as error:
            # They are looked at again with every poll until they can be used; once is enough to say it.
            if str(error) != self._keys_complaint:
                self._keys_complaint = str(error)
                log.error("the key files cannot be used, so the keys stay as they were: %s", error)

    async def _note_revocations(self) -> None:
        if self.revocations is not None:
            try:
                changed = await asyncio.to_thread(self.revocations.keep, self.state.registry)
                self.services.revocations_written(changed)
            except ConfideError as error:
                log.error("%s", error)

    async def _apply_registry(self, number: int) -> int:
        """Give every session its caller's rights as they are now, where these changed behind that change; the number of the newest."""
        connected = {session.connection.peer_key for session in self.sessions}
        passed_on = self.peers.passed_on
        newest, changed = await asyncio.get_running_loop().run_in_executor(
            self._reading, self.callers.changed_since, number, connected | passed_on
        )
        for key in passed_on:
            if key in changed and changed[key] is None:
                self.peers.shut_out(key, self.callers.why_closed(key))
        for session in self.sessions:
            key = session.connection.peer_key
            if key in connected and key not in changed:
                continue
            # Of one that came meanwhile, nobody knows whether that was before the change.
            caller = changed[key] if key in changed else self.callers.current(key)
            if caller is not None and caller.space_id == session.caller.space_id:
                session.caller = caller
            else:
                self._shut_out(session, self.callers.why_closed(session.connection.peer_key))
        return newest

    def _end_expired(self) -> None:
        now = self.state.registry.clock()
        for session in self.sessions:
            if session.caller.closed(now) == "expired":
                self._shut_out(session, "expired")

    def _shut_out(self, session: Session, word: str) -> None:
        """End a session, beside all others: one that does not read its goodbye must not hold up the rest."""
        if session.ended_by is None:
            name, alias = session.connection.session_id, session.caller.alias
            extra = {"event": f"session shut out: {word}", "session": name, "space": session.caller.space_id}
            log.info("session %s: %s is shut out: %s", name, alias, word, extra=extra)
            session.ended_by = word
            self._in_background(session.shut_out(word))

    def is_live(self, public_key: bytes, session_id: str) -> bool:
        """Whether a key has a live session of this id, here or passed on to another node."""
        is_here = any(
            session.connection.session_id == session_id
            and session.connection.peer_key == public_key
            and session.ended_by is None
            for session in self.sessions
        )
        return is_here or self.peers.is_live(public_key, session_id)

    def send_elsewhere(self, space_id: str) -> None:
        """Another node holds the space: its sessions have to go there, by coming again."""
        if self.peers.ways is None:
            return
        for session in self.sessions:
            if session.caller.space_id == space_id and session.ended_by is None:
                self._in_background(session.close("restart"))
        self.services.elsewhere(space_id)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin what nobody waits for before the end."""
        task = asyncio.create_task(work)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _close_sessions(self) -> None:
        word = self.peers.goodbye
        goodbyes = [session.close(word) for session in self.sessions]
        goodbyes += [connection.close(word) for connection in self._explained]
        goodbyes.append(self.peers.leave())
        closing = [asyncio.create_task(goodbye) for goodbye in goodbyes]
        if not closing:
            return
        _, late = await asyncio.wait(closing, timeout=STOP_DEADLINE_S)
        for task in late:
            task.cancel()
