"""What a daemon does because it is one node of several: it follows the registry that all of them write to, and knows whom other nodes
speak for.

Loaded where `[store]` is set. `Nodes` is what the daemon asks (`confide_daemon.addons.Peers`).
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
from confide_daemon.access.authorization import denied
from confide_daemon.access.registry import RegistryState
from confide_daemon.access.revocations import Revocations
from confide_daemon.addons import ListeningSocket, Peers, PeersHost
from confide_daemon.config import parse_listen
from confide_daemon.errors import EngineError, OvertakenError

if TYPE_CHECKING:
    from confide_cluster.daemon.relay import Relays

log = logging.getLogger(__name__)

FOLLOW_S: Final = 0.2
"""Between two looks at the end of the registry's log: whoever is revoked on one node is shut out on all within a second."""
SNAPSHOT_EVERY_S: Final = 60.0


class RegistryFollower:
    """The registry here, kept as its log is."""

    def __init__(
        self,
        state: RegistryState,
        *,
        on_overtaken: Callable[[OvertakenError], None],
        revocations: Revocations | None = None,
    ) -> None:
        """
        Args:
            on_overtaken: told once that a newer version has written the registry, which cannot be followed from then on.
            revocations: what is noted beside the data folder, which whoever put the store back could not change.
        """
        self._revocations = revocations
        self._state = state
        self._on_overtaken = on_overtaken
        self.is_overtaken = False
        self._registry = state.registry
        self._complaint = ""
        self._followed_at = time.monotonic()  # by whoever has opened the state
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="confide-registry")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def follow(self) -> None:
        """Have the registry here be as its log is. Raises StorageError, EngineError."""
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
        """Whether it could not be followed for so long: what others have changed since is not known here."""
        return time.monotonic() - self._followed_at > seconds

    def health_problems(self) -> set[str]:
        """`storage` where the registry cannot be followed, or has had what the store has not."""
        shared = self._registry.shared
        is_ill = shared is not None and (shared.failure is not None or bool(shared.kept))
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
                # A bug must not end this untold; its text may quote anything.
                self._complain(type(error).__name__, is_expected=False)
            await asyncio.sleep(FOLLOW_S)

    def _take_up(self) -> None:
        """What the files here have of the registry, and the registry of them where it was fetched."""
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
        """Once for each reason; of an engine that is away the heartbeat tells."""
        if why != self._complaint and not is_expected:
            log.error("the registry cannot be followed: %s", why)
        self._complaint = why


class StoreHealth:
    """Whether this node knows what the others have changed: nobody new is let in while it may not."""

    def __init__(self, leases: SpaceLeases, following: RegistryFollower, *, lease_s: float) -> None:
        self._leases = leases
        self._following = following
        self._lease_s = lease_s

    @property
    def is_lost(self) -> bool:
        is_behind = self._following.is_overtaken or self._following.is_behind(self._lease_s)
        return is_behind or not self._leases.is_confirmed

    async def stays_lost(self) -> bool:
        """The same, after a look: a process that was stopped for a while has asked nobody meanwhile, and is answered now."""
        if self.is_lost and self._leases.failure is None:
            with contextlib.suppress(ConfideError):
                await self._leases.confirm()
                await self._following.follow()
        return self.is_lost


class NodeAdmission:
    """Who may come in at the address for nodes: another node of this daemon, for a caller that may (PROTOCOL.md 12.2)."""

    def __init__(self, daemon: PeersHost) -> None:
        self._daemon = daemon

    def invite_psk(self, _invite_id: bytes) -> None:
        """Nobody joins here."""

    def speaker(self, public_key: bytes, hello: dict[str, object]) -> Speaker:
        """Whom a node speaks for. Raises DeniedError: it is none of this daemon's."""
        keys = self._daemon.keys()
        daemons = [keys.current.public_key, *([keys.rotation.old.public_key] if keys.rotation else [])]
        try:
            return Speaker.read(hello, public_key, daemons, now=time.time())
        except ValueError:
            raise denied("unknown", public_key) from None

    def stand_for_caller(self, connection: Connection) -> bool:
        """From now on the channel, a node's, is the session of the caller that it speaks for; whether that one comes by HTTP."""
        speaker = self.speaker(connection.peer_key, connection.hello)
        hello = {} if speaker.replaces is None else {"replaces": speaker.replaces}
        connection.stand_for(speaker.caller, speaker.session_id, hello)
        return speaker.is_by_http

    async def admit(self, public_key: bytes, hello: dict[str, object], _invite_id: bytes | None) -> dict[str, object]:
        """The welcome for the caller that the node speaks for. Raises DeniedError, BusyError."""
        speaker = self.speaker(public_key, hello)
        if self._daemon.is_stopping:
            raise DeniedError("restart", fingerprint_words(public_key))
        if speaker.is_by_http:
            if not self._daemon.answers_callers:
                raise denied("unknown", public_key)
            return await self._daemon.callers.admit_by_http(speaker.caller)
        asked = {} if speaker.replaces is None else {"replaces": speaker.replaces}
        return await self._daemon.callers.admit(speaker.caller, asked, None)


class Nodes(Peers):
    """The other nodes over one store."""

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
        self.goodbye = "restart"  # whoever comes again is served by another one
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
        """Ask whether the spaces are still this node's."""
        if self._relays is not None:
            await self._leases.confirm()

    async def open(self) -> None:
        """Take connections of other nodes, and follow the registry. Raises ListenError."""
        if self._following is not None:
            self._following.start()
        if self._listening is not None:
            await self._listening.open(*parse_listen(self._daemon.config.table(NodeConfig).listen))

    async def leave(self) -> None:
        """End what is passed on, each as soon as nothing of it is under way."""
        if self._relays is not None:
            await self._relays.close()

    async def close(self) -> None:
        """Take no connections any more, and follow nothing."""
        if self._listening is not None:
            await self._listening.close()
        if self._following is not None:
            await self._following.close()
        if self._ending is not None:
            self._ending.cancel()
            await asyncio.gather(self._ending, return_exceptions=True)

    async def is_cut_off(self) -> bool:
        """Return whether what other nodes have changed may not be known here, after a look."""
        return self._contact is not None and await self._contact.stays_lost()

    def why_unready(self) -> str | None:
        """Return `version` where a newer node has written the registry, `store` where the store does not answer."""
        if self.failure is not None:
            return "version"
        return "store" if self._contact is not None and self._contact.is_lost else None

    def health_problems(self) -> set[str]:
        """Return as `RegistryFollower.health_problems`."""
        return set() if self._following is None else self._following.health_problems()

    async def pass_on(self, connection: Connection, space_id: str, toll: RateLimit) -> bool:
        """Return as `Relays.serve`."""
        return self._relays is not None and await self._relays.serve(connection, space_id, toll)

    @property
    def passed_on(self) -> set[bytes]:
        """The keys of those whose sessions are passed on."""
        return set() if self._relays is None else self._relays.callers

    def shut_out(self, key: bytes, word: str) -> None:
        """End the sessions of a caller that are passed on."""
        if self._relays is not None:
            self._relays.shut_out(key, word)

    def is_live(self, public_key: bytes, session_id: str) -> bool:
        """Return whether a session of a caller with this id is passed on."""
        return self._relays is not None and self._relays.is_live(public_key, session_id)

    def _be_overtaken(self, error: OvertakenError) -> None:
        """What nodes of a newer version change is not known here from now on: nobody is let in, and all goes to one of them."""
        log.error("this node ends: %s", error)
        self.failure = error
        self._ending = asyncio.create_task(self._stop_for_successor())

    async def _stop_for_successor(self) -> None:
        """Stop, as soon as a node of another version serves; and in time, since nobody knows here who is revoked."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._daemon.config.table(StoreConfig).lease_s):
                while not await self._is_succeeded():  # noqa: ASYNC110 - some times, once in a run
                    await asyncio.sleep(FOLLOW_S)
        self._daemon.stop()

    async def _is_succeeded(self) -> bool:
        with contextlib.suppress(ConfideError):
            return await self._leases.is_succeeded()
        return False
