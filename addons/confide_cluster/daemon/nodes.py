"""A daemon as one node of a cluster: it applies other nodes' changes of the registry, and accepts
sessions that other nodes forward.

Loaded if `[store]` is set. `Nodes` implements the daemon's interface
(`confide_daemon.addons.Peers`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from confide_cluster.daemon.spaces import node_bootstrap
from confide_cluster.daemon.spaces.leases import SpaceLeases
from confide_cluster.settings import NodeConfig, StoreConfig
from confide_cluster.shared.speaking import Speaker
from confide_crypto.errors import ConfideError, DeniedError
from confide_crypto.keys.identity import fingerprint_words
from confide_crypto.transport.inbox import RateLimit
from confide_crypto.transport.open_channel import Connection
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_daemon.access import space_removal
from confide_daemon.access.authorization import denied_error
from confide_daemon.access.registry import RegistryState
from confide_daemon.access.revocations import Revocations
from confide_daemon.addons import ListeningSocket, Peers, PeersHost
from confide_daemon.config import parse_listen
from confide_daemon.errors import EngineError, OvertakenError

if TYPE_CHECKING:
    from confide_cluster.daemon.relay import Relays

log = logging.getLogger(__name__)

FOLLOW_S: Final = 0.2
"""Interval of reading the registry's log: a caller revoked on one node is disconnected from all
within a second.
"""
SNAPSHOT_EVERY_S: Final = 60.0


class RegistryFollower:
    """Applies changes of other nodes to the local registry."""

    def __init__(
        self,
        state: RegistryState,
        *,
        on_overtaken: Callable[[OvertakenError], None],
        revocations: Revocations | None = None,
    ) -> None:
        """Args:
        on_overtaken: called once if a newer version has written the registry, which can then no
            longer be followed.
        revocations: the record outside the data folder, which a restore of the store does not change.
        """
        self._revocations = revocations
        self._state = state
        self._on_overtaken = on_overtaken
        self.is_overtaken = False
        self._registry = state.registry
        self._complaint = ""
        self._followed_at = time.monotonic()  # when the state was opened
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="confide-registry")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def follow(self) -> None:
        """Apply the latest changes to the local registry. Raises EngineError if PostgreSQL is
        unavailable, and StorageError if they cannot be applied.
        """
        began = time.monotonic()
        try:
            shared = self._registry.shared
            if await asyncio.to_thread(self._registry.follow) or (shared is not None and shared.was_fetched):
                await asyncio.to_thread(self._take_up)
        except OvertakenError as error:
            if not self.is_overtaken:
                self.is_overtaken = True
                self._on_overtaken(error)
            raise
        self._followed_at = max(self._followed_at, began)

    def is_behind(self, seconds: float) -> bool:
        """Return True if the registry could not be updated for that many seconds, so that later
        changes by other nodes are unknown here.
        """
        return time.monotonic() - self._followed_at > seconds

    def health_problems(self) -> set[str]:
        """Return `{"storage"}` if the registry cannot be updated, or had changes that PostgreSQL
        lacked; else an empty set.
        """
        shared = self._registry.shared
        is_ill = shared is not None and (shared.failure is not None or bool(shared.kept_files))
        return {"storage"} if is_ill else set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        snapshot_at = loop.time() + SNAPSHOT_EVERY_S
        while True:
            try:
                await self.follow()
                if loop.time() >= snapshot_at:
                    snapshot_at = loop.time() + SNAPSHOT_EVERY_S
                    await asyncio.to_thread(self._take_snapshot)
                self._complaint = ""
            except ConfideError as error:
                raise_if_cancelled()
                self._complain(str(error), is_expected=isinstance(error, EngineError))
            except Exception as error:
                raise_if_cancelled()
                # A bug must not end this silently. Log only its type, since its text may quote
                # anything.
                self._complain(type(error).__name__, is_expected=False)
            await asyncio.sleep(FOLLOW_S)

    def _take_up(self) -> None:
        """Update the local key files from the registry, and the registry from local records after
        it was fetched.
        """
        shared = self._registry.shared
        if shared is not None and shared.was_fetched and self._revocations is not None:
            self._revocations.apply(self._registry)
            shared.was_fetched = False
        node_bootstrap.follow_keys(self._registry, self._state.folder)
        space_removal.finish_elsewhere(self._state)

    def _take_snapshot(self) -> None:
        shared = self._registry.shared
        if shared is not None and shared.is_snapshot_due():
            shared.take_snapshot()

    def _complain(self, why: str, *, is_expected: bool) -> None:
        """Log each reason once; the heartbeat already reports an unavailable engine."""
        if why != self._complaint and not is_expected:
            log.error("the registry cannot be followed: %s", why)
        self._complaint = why


class StoreHealth:
    """Tracks whether this node may miss changes by other nodes, because PostgreSQL does not answer.
    It accepts no new connection meanwhile.
    """

    def __init__(self, leases: SpaceLeases, following: RegistryFollower, *, lease_s: float) -> None:
        self._leases = leases
        self._following = following
        self._lease_s = lease_s

    @property
    def is_lost(self) -> bool:
        is_behind = self._following.is_overtaken or self._following.is_behind(self._lease_s)
        return is_behind or not self._leases.is_confirmed

    async def stays_lost(self) -> bool:
        """Return True if PostgreSQL still does not answer after another attempt. A process that was
        stopped for a while needs the attempt, since it has not tried meanwhile.
        """
        if self.is_lost and self._leases.failure is None:
            with contextlib.suppress(ConfideError):
                await self._leases.confirm()
                await self._following.follow()
        return self.is_lost


class NodeAdmission:
    """Decides which connections are accepted at the address for nodes: those of another node of
    this daemon, for a caller that may connect (PROTOCOL.md 12.2).
    """

    def __init__(self, daemon: PeersHost) -> None:
        self._daemon = daemon

    async def invite_psk(self, _invite_id: bytes) -> None:
        """Return None, since invites are not accepted at the address for nodes."""

    def speaker(self, public_key: bytes, hello: dict[str, object]) -> Speaker:
        """Return the caller for which another node forwards a session. Raises DeniedError if the
        peer is not a node of this daemon.
        """
        keys = self._daemon.keys()
        daemons = [keys.current.public_key, *([keys.rotation.old.public_key] if keys.rotation else [])]
        try:
            return Speaker.read(hello, public_key, daemons, now=time.time())
        except ValueError:
            raise denied_error("unknown", public_key) from None

    def stand_for_caller(self, connection: Connection) -> bool:
        """Make a node's channel the session of the caller that it forwards. Return True if that
        caller uses HTTP.
        """
        speaker = self.speaker(connection.peer_key, connection.hello)
        hello = {} if speaker.replaces is None else {"replaces": speaker.replaces}
        connection.stand_for(speaker.caller, speaker.session_id, hello)
        return speaker.is_by_http

    async def admit(self, public_key: bytes, hello: dict[str, object], _invite_id: bytes | None) -> dict[str, object]:
        """Return the welcome message for the caller that a node forwards. Raises DeniedError if the
        caller may not connect, and BusyError if there are too many connections.
        """
        speaker = self.speaker(public_key, hello)
        if self._daemon.is_stopping:
            raise DeniedError("restart", fingerprint_words(public_key))
        if speaker.is_by_http:
            if not self._daemon.answers_callers:
                raise denied_error("unknown", public_key)
            return await self._daemon.callers.admit_by_http(speaker.caller)
        asked = {} if speaker.replaces is None else {"replaces": speaker.replaces}
        return await self._daemon.callers.admit(speaker.caller, asked, None)


class Nodes(Peers):
    """The access of a daemon to the other nodes of its cluster."""

    def __init__(self, daemon: PeersHost, leases: SpaceLeases) -> None:
        self._daemon = daemon
        self._leases = leases
        self._following: RegistryFollower | None = None
        self._contact: StoreHealth | None = None
        self._relays: Relays | None = None
        self._listening: ListeningSocket | None = None
        self._ending: asyncio.Task[None] | None = None
        if daemon.registry.shared is not None:
            self._following = RegistryFollower(
                daemon.state, on_overtaken=self._be_overtaken, revocations=daemon.revocations
            )
        if daemon.config.table(NodeConfig).listen:
            self._begin_to_pass_on()

    def _begin_to_pass_on(self) -> None:
        from confide_cluster.daemon.relay import Holders, Relays

        daemon, leases = self._daemon, self._leases
        self.goodbye = "restart"  # another node serves callers that reconnect
        self.ways = holders = Holders(leases, daemon)
        self._relays = Relays(holders)
        if self._following is not None:
            self._contact = StoreHealth(leases, self._following, lease_s=daemon.config.table(StoreConfig).lease_s)
        self._door = NodeAdmission(daemon)
        self._listening = daemon.listener(self._door, self._let_in)

    async def _let_in(self, connection: Connection) -> None:
        is_by_http = self._door.stand_for_caller(connection)
        await self._daemon.let_in(connection, is_passed_on=True, is_by_http=is_by_http)

    async def confirm(self) -> None:
        """Check that this node still holds the leases of its spaces."""
        if self._relays is not None:
            await self._leases.confirm()

    async def open(self) -> None:
        """Accept connections of other nodes, and start to apply their changes of the registry.
        Raises ListenError if the address cannot be used.
        """
        if self._following is not None:
            self._following.start()
        if self._listening is not None:
            await self._listening.open(*parse_listen(self._daemon.config.table(NodeConfig).listen))

    async def leave(self) -> None:
        """End the sessions that this node forwards, each as soon as it has no request in progress."""
        if self._relays is not None:
            await self._relays.close()

    async def close(self) -> None:
        """Accept no more connections of other nodes, and stop applying their changes."""
        if self._listening is not None:
            await self._listening.close()
        if self._following is not None:
            await self._following.close()
        if self._ending is not None:
            self._ending.cancel()
            await asyncio.gather(self._ending, return_exceptions=True)

    async def is_cut_off(self) -> bool:
        """Return True if changes by other nodes may be missing here, even after another attempt to
        read them.
        """
        return self._contact is not None and await self._contact.stays_lost()

    def why_unready(self) -> str | None:
        """Return the reason why this node is not ready, or None: `version` if a newer node has
        written the registry, `store` if PostgreSQL does not answer.
        """
        if self.failure is not None:
            return "version"
        return "store" if self._contact is not None and self._contact.is_lost else None

    def health_problems(self) -> set[str]:
        """Return `{"storage"}` if the registry cannot be updated, or had changes that PostgreSQL
        lacked; else an empty set.
        """
        return set() if self._following is None else self._following.health_problems()

    async def pass_on(self, connection: Connection, space_id: str, toll: RateLimit) -> bool:
        """Forward a caller's session to the node that holds its space, until the session ends.
        Return False if this node must serve it itself.

        Raises EngineError if it is unknown which node holds the space, or that node accepts no
        forwarded sessions.
        """
        return self._relays is not None and await self._relays.serve(connection, space_id, toll)

    @property
    def forwarded_keys(self) -> set[bytes]:
        """The keys of the callers whose sessions are forwarded."""
        return set() if self._relays is None else self._relays.callers

    def shut_out(self, key: bytes, word: str) -> None:
        """End the forwarded sessions of the caller with this key, for the reason `word`."""
        if self._relays is not None:
            self._relays.shut_out(key, word)

    def is_live(self, public_key: bytes, session_id: str) -> bool:
        """Return True if a session with this id, of the caller with this key, is being forwarded."""
        return self._relays is not None and self._relays.is_live(public_key, session_id)

    def _be_overtaken(self, error: OvertakenError) -> None:
        """Stop admitting callers: changes by nodes of a newer version are unknown here from now on,
        so those nodes take over.
        """
        log.error("this node ends: %s", error)
        self.failure = error
        self._ending = asyncio.create_task(self._stop_for_successor())

    async def _stop_for_successor(self) -> None:
        """Stop as soon as a node of another version serves, and at the latest after a while, since
        revocations are unknown here.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._daemon.config.table(StoreConfig).lease_s):
                while not await self._is_succeeded():  # noqa: ASYNC110 - some times, once in a run
                    await asyncio.sleep(FOLLOW_S)
        self._daemon.stop()

    async def _is_succeeded(self) -> bool:
        with contextlib.suppress(ConfideError):
            return await self._leases.is_succeeded()
        return False
