"""The interface between the daemon and its add-ons (docs/addons.md): the classes that an add-on
extends, and the objects of the daemon that it may use.

An add-on is an optional feature in a package of its own, which the daemon's own code never names.
The daemon finds it by the entry point group `confide.addons.daemon`, where each entry is a subclass
of `Addon`. The add-on's tables of daemon.toml are in `TABLES` of its package's `settings.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

from confide_crypto.errors import ConfideError
from confide_crypto.limits import Timers
from confide_crypto.transport.inbox import RateLimit
from confide_crypto.transport.open_channel import Authorize, Connection
from confide_daemon.access.authorization import CallerAuthorization
from confide_daemon.access.enrolled_callers import Caller, Grants
from confide_daemon.access.registry import Registry, RegistryState
from confide_daemon.access.revocations import Revocations
from confide_daemon.config import DaemonConfig
from confide_daemon.datadir.daemon_keys import Keys
from confide_daemon.datadir.paths import DaemonPaths, DataFolder
from confide_daemon.documents.changes import DocumentChange
from confide_daemon.entry_points import ADDONS, load_group
from confide_daemon.sealing.rosters import RosterDesk
from confide_daemon.spaces.part import SpacePart
from confide_daemon.spaces.pool import Spaces
from confide_daemon.spaces.space import Space
from confide_daemon.tools.tool_context import Prompt, Tool
from confide_memory.forms import Carried
from confide_memory.tools.result_views import ResultView
from confide_memory.wire.operation import Answerer, Operation


class SessionHost(Protocol):
    """The session of one connected device, as an add-on may use it."""

    @property
    def connection(self) -> Connection:
        """The encrypted connection of this session; its `session_id` identifies the session."""

    @property
    def desk(self) -> RosterDesk:
        """The service that keeps each space's roster: the signed list of the space's devices."""

    @property
    def registry(self) -> Registry:
        """The registry, which lists the public keys that may connect."""

    @property
    def grants(self) -> Grants:
        """The current rights of the connected device; no rights once its access has ended."""

    def caller_now(self) -> Caller:
        """Return the connected device as the registry has it now. Raises GrantError if its access
        has ended.
        """

    async def epoch_for(self, key: bytes) -> int | None:
        """Return the newest key epoch of the space if the public key `key` belongs to one of its
        devices, or None if it does not.
        """

    async def ask(self, operation: Operation[Any, Any], body: Carried, timeout_s: float) -> Any:
        """Send a request to the device and return its answer. Pass this method to
        `Operation.ask_machine`, which checks the answer.
        """

    def publish_here_too(self, change: DocumentChange) -> None:
        """Notify all devices of the space, including this one, of a document's new revision."""

    async def close_others(self) -> None:
        """Close all other sessions of the space, and wait until their tasks have ended. Raises
        RequestError if they have not ended in time.
        """


class SessionPart:
    """Base class of the requests and background work that an add-on adds to each session.

    Attributes:
        operations: handlers, made by `Operation.by`, for requests that need the open space. Each
            request names its project itself.
        early: handlers for requests that are answered even while the space is locked.
        changing: names of the operations that change documents. They run to completion even if the
            connection ends.
    """

    operations: Mapping[str, Answerer] = MappingProxyType({})
    early: Mapping[str, Answerer] = MappingProxyType({})
    changing: Collection[str] = ()

    def use(self, space: Space) -> None:
        """Receive the session's open space. Called again if the space was closed and reopened."""

    async def run(self) -> None:
        """Run the add-on's background work of this session until it is cancelled."""


class Verbs(Protocol):
    """The commands that the daemon accepts on its control socket, over which the operator's
    commands reach it (`confide_daemon.datadir.control_client`).
    """

    def add(
        self,
        name: str,
        answer: Callable[[Mapping[str, object]], Awaitable[dict[str, object]]],
        *,
        deadline_s: float = ...,
    ) -> None:
        """Register `answer` as the handler of the command `name`. The client gets an error if the
        handler takes longer than `deadline_s`.
        """


class Gauges(Protocol):
    """The gauges that the daemon publishes in its Prometheus metrics."""

    def add(self, name: str, says: str, value: Callable[[], float | None]) -> None:
        """Publish a gauge without labels. `name` excludes the common prefix, `says` is its help
        text, and `value` returns the current value, or None if there is none now.
        """


class DaemonHost(Protocol):
    """The running daemon, as an add-on may use it."""

    @property
    def state(self) -> RegistryState:
        """The open data folder: its keys and its registry."""

    @property
    def config(self) -> DaemonConfig:
        """The settings from daemon.toml."""

    @property
    def config_file(self) -> Path | None:
        """The path of daemon.toml, which may not exist; None if unknown."""

    @property
    def is_on_demand(self) -> bool:
        """True if a proxy on this computer started the daemon when it needed one."""

    @property
    def spaces(self) -> Spaces:
        """All spaces that this daemon serves."""

    @property
    def registry(self) -> Registry:
        """The registry, which lists the public keys that may connect."""

    @property
    def peers(self) -> Peers:
        """The connections to other daemons that serve the same spaces. Set once the daemon runs."""

    @property
    def verbs(self) -> Verbs:
        """The commands that the daemon accepts on its control socket."""

    @property
    def gauges(self) -> Gauges:
        """The gauges that the daemon publishes in its metrics."""

    async def is_cut_off(self) -> bool:
        """Return True if this node may have missed changes made by other nodes. It then accepts no
        new connection.
        """

    def announce(self, space_id: str, change: DocumentChange) -> None:
        """Notify all devices of a space, and all services, of a revision that the daemon itself
        made.
        """


class ListeningSocket(Protocol):
    """A TCP socket on which the daemon accepts connections."""

    async def open(self, host: str, port: int) -> None:
        """Start accepting connections. Raises ListenError if the address cannot be bound."""

    async def close(self) -> None:
        """Stop accepting connections; those that are open continue."""


class PeersHost(DaemonHost, Protocol):
    """The running daemon, as `Peers` uses it."""

    @property
    def callers(self) -> CallerAuthorization:
        """The check that decides which public keys may connect."""

    @property
    def timers(self) -> Timers:
        """The timeouts for connections to other nodes."""

    @property
    def revocations(self) -> Revocations | None:
        """The record of revoked keys that is kept outside the data folder; None if no place for it
        is configured.
        """

    @property
    def answers_callers(self) -> bool:
        """True if a service of this daemon answers requests of HTTP clients that another node
        forwards.
        """

    @property
    def is_stopping(self) -> bool:
        """True once the daemon is stopping. No new work may begin then."""

    def keys(self) -> Keys:
        """Return the daemon's valid identity keys: the current one and, during a rotation, the
        previous one.
        """

    def listener(self, authorize: Authorize, on_open: Callable[[Connection], Awaitable[None]]) -> ListeningSocket:
        """Return a listening socket for peers whose key `authorize` accepts; `on_open` is called
        with each new connection.
        """

    async def let_in(self, connection: Connection, *, is_passed_on: bool = False, is_by_http: bool = False) -> None:
        """Serve an open connection until it ends, with the current rights of its client."""

    def stop(self) -> None:
        """Shut the daemon down cleanly."""


class RemoteSpace(Protocol):
    """A connection, on behalf of one HTTP client, to the node that holds the client's space."""

    @property
    def connection(self) -> Connection:
        """The encrypted connection to that node, which holds the space."""

    @property
    def node(self) -> int:
        """The number of the node that holds the space."""


class Ways(Protocol):
    """Opens connections from this node to the nodes that hold the spaces of its HTTP clients."""

    async def reach_by_http(self, caller: Caller, session_id: str) -> RemoteSpace | None:
        """Return a connection to the node that holds the client's space, or None if this node
        itself must serve the client.

        Raises EngineError if the node that holds the space cannot be determined; DeniedError or
        ConnectionLost if that node refuses the connection.
        """

    def relying_on(self, far: Any) -> AbstractContextManager[None]:
        """Close the connection `far` as soon as its node loses the space, and at the latest when
        the `with` block ends.
        """


class Peers:
    """Connects a daemon with the other nodes that serve the same spaces. This base class is for a
    daemon without other nodes.

    Attributes:
        goodbye: the close code that sessions get when the daemon stops.
        ways: opens connections to other nodes; None if there are none.
        failure: the error for which the daemon must stop, so that another node takes over; None as
            long as it may run.
    """

    goodbye = "shutdown"
    ways: Ways | None = None
    failure: ConfideError | None = None

    async def confirm(self) -> None:
        """Load the changes that other nodes have made, before the daemon accepts any connection."""

    async def open(self) -> None:
        """Accept connections from other nodes, and follow their changes. Raises ListenError if the
        address cannot be bound.
        """

    async def leave(self) -> None:
        """End all sessions that this node forwards to other nodes."""

    async def close(self) -> None:
        """Close all connections to other nodes. Called after the spaces are closed."""

    async def is_cut_off(self) -> bool:
        """Return True if this node may have missed changes made by other nodes. It then accepts no
        new connection.
        """
        return False

    def why_unready(self) -> str | None:
        """Return a word that says why a load balancer should send no clients to this node, or None
        if it is ready.
        """

    def health_problems(self) -> set[str]:
        """Return the current problems with other nodes, by their names in the `/health` response."""
        return set()

    async def pass_on(self, connection: Connection, space_id: str, toll: RateLimit) -> bool:
        """Forward a device's session to the node that holds its space, until the session ends.
        Return True then, or False if this node itself must serve the session.
        """
        return False

    @property
    def forwarded_keys(self) -> set[bytes]:
        """The public keys of the devices whose sessions this node forwards to others."""
        return set()

    def shut_out(self, key: bytes, word: str) -> None:
        """End all forwarded sessions of the device with this public key; `word` is the reason that
        it gets.
        """

    def is_live(self, public_key: bytes, session_id: str) -> bool:
        """Return True if this node forwards a session with this id for the device with this public
        key.
        """
        return False


@dataclass(frozen=True, slots=True)
class HeldCopy:
    """A copy of a space that an add-on has made, such as a backup. It may contain a text that a
    user asked to forget.

    Attributes:
        place, name: the kind of copy, and its name.
        level: how the copy is handled, in the words of a forget receipt (PROTOCOL.md 9.11).
    """

    place: str
    name: str
    level: str


class Service:
    """Base class of work that an add-on does outside of sessions, for as long as the daemon runs.

    Attributes:
        answers_callers: True if the service answers requests of HTTP clients that another node
            forwards (PROTOCOL.md 12.5).
    """

    answers_callers = False

    async def open(self) -> None:
        """Start the service. Raise ConfideError to prevent the daemon from starting."""

    async def close(self) -> None:
        """Stop the service. Called before the spaces are closed."""

    @property
    def is_busy(self) -> bool:
        """True if the service is doing work that a stop of the daemon would interrupt."""
        return False

    @property
    def is_backed_up(self) -> bool | None:
        """True if a recent, verified backup exists, False if none does; None if this service makes
        no backups.
        """
        return None

    def health_problems(self) -> set[str]:
        """Return the service's current problems, by their names in the `/health` response."""
        return set()

    def on_change(self, space_id: str, change: DocumentChange) -> None:
        """Handle a notification that a document of the space has a new revision."""

    def copies_of(self, space_id: str, before: float) -> Sequence[HeldCopy]:
        """Return the copies of a space that this add-on made before a time (seconds since 1970).
        Blocks while it looks.
        """
        return ()

    async def drop_copies(self, space_id: str, before: float) -> Sequence[str]:
        """Delete the space from the copies that `copies_of` lists, because a user asked to forget a
        text. Return the names of those copies. Raises ConfideError if a copy cannot be changed.
        """
        return ()

    def on_records_written(self, space_id: str) -> None:
        """Handle a change of the file that records a space's forgotten texts
        (`DataFolder.forgotten_file`).
        """

    def on_space_lost(self, space_id: str) -> None:
        """Handle the loss of a space to another node. Clients that wait for notifications of the
        space must reconnect.
        """

    def on_revocations_written(self, files: Sequence[Path]) -> None:
        """Handle a notification that revoked keys were written to these files."""

    async def settle(self, space_id: str) -> None:
        """Wait until all work that the service has begun in the space is finished. The space
        accepts no new work meanwhile.
        """

    async def serve(self, connection: Connection) -> None:
        """Answer the requests that another node forwards over this connection, until it ends."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check of `confided doctor`.

    Attributes:
        name: the name of the check, the same in every version.
        problem: the problem that was found, or None if there is none.
        hint: how to solve the problem, or None.
        detail: the state that was found, such as a version or a number.
    """

    name: str
    problem: str | None = None
    hint: str | None = None
    detail: str | None = None

    @property
    def is_ok(self) -> bool:
        """True if no problem was found."""
        return self.problem is None


class Addon:
    """Base class of the part of an add-on that runs in the daemon. A subclass overrides what it
    provides.

    Attributes:
        toolsets: the tools of the add-on, by the groups that clients select.
        prompts: prompts for the client's menu.
        views: HTML pages that clients connected through another add-on's service show beside
            results. These clients do not get the add-on's tools, which only a device may call.
    """

    toolsets: ClassVar[Mapping[str, Sequence[Tool]]] = {}
    prompts: ClassVar[Sequence[Prompt]] = ()
    views: ClassVar[Sequence[ResultView]] = ()

    def space(self, space: Space, config: DaemonConfig) -> Iterable[SpacePart]:
        """Return the add-on's objects for a space that is being opened."""
        return ()

    def session(self, session: SessionHost) -> Iterable[SessionPart]:
        """Return the add-on's objects for a new session of a device."""
        return ()

    def service(self, daemon: DaemonHost) -> Service | None:
        """Return the add-on's service, or None if none is configured."""

    def peers(self, daemon: PeersHost) -> Peers | None:
        """Return the object that connects this daemon with other nodes, or None if none are
        configured.
        """

    def files(self, config: DaemonConfig) -> int:
        """Return how many files the add-on's service may hold open at once. The daemon reserves
        them, so that spaces can always open theirs.
        """
        return 0

    def files_of_session(self, config: DaemonConfig) -> int:
        """Return how many files the add-on may hold open for each session, in addition to its
        connection.
        """
        return 0

    def revocation_folders(self, config: DaemonConfig) -> Mapping[str, str]:
        """Return the folders outside the data folder in which revoked keys are recorded, by the
        names of the options that set them.

        A folder whose option name ends with `to` may be missing for a while, such as a detached
        backup disk.
        """
        return {}

    def snapshots_to(self, config: DaemonConfig) -> str:
        """Return the place to which `snapshot` would copy the data folder, or "" if it would make
        no copy.
        """
        return ""

    def snapshot(self, folder: DataFolder, config: DaemonConfig, config_file: Path) -> str | None:
        """Copy the data folder before its upgrade. Return the name of the copy, or None if this
        add-on makes no copies.

        No daemon serves the folder meanwhile. Raises ConfideError if the folder cannot be copied.
        """

    def checks(self, paths: DaemonPaths, follow: Callable[[str], None]) -> Iterable[Check]:
        """Yield the results of the add-on's checks for `confided doctor`: of the configuration, the
        data folder and this computer. Call `follow` with the name of each step.
        """
        return ()


def revocation_folders(config: DaemonConfig) -> dict[str, str]:
    """Return the folders in which revoked keys are recorded, of all add-ons, by the names of the
    options that set them.
    """
    return {option: place for addon in installed() for option, place in addon.revocation_folders(config).items()}


@cache
def installed() -> tuple[Addon, ...]:
    """Return the installed add-ons, sorted by name.

    Raises AddonError if one cannot be loaded. The daemon refuses to run without an add-on that is
    installed, since it could do harm: without the add-on for moving spaces, for instance, it would
    use a space again that has moved to another server.
    """
    return tuple(addon() for addon in load_group(ADDONS))
