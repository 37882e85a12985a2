"""The add-on interface: what an add-on gives the daemon, what it may use, and what both promise
(docs/addons.md).

An add-on is a capability in a folder of its own, which the core never names. The daemon finds it by
the entry points of the group `confide.addons.daemon`, each a subclass of `Addon`. Its tables of
daemon.toml are in `TABLES` of its package's `settings.py`.
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
    """The interface of a device's session that add-ons use."""

    @property
    def connection(self) -> Connection:
        """The channel, whose `session_id` names the session."""

    @property
    def desk(self) -> RosterDesk:
        """The device rosters of all spaces."""

    @property
    def registry(self) -> Registry:
        """The registry of keys that may connect."""

    @property
    def grants(self) -> Grants:
        """The caller's current rights; empty once its access has ended."""

    def caller_now(self) -> Caller:
        """Return the caller with its current rights. Raises GrantError if its access has ended."""

    async def epoch_for(self, key: bytes) -> int | None:
        """Return the newest key epoch of the space if `key` is one of its devices, else None."""

    async def ask(self, operation: Operation[Any, Any], body: Carried, timeout_s: float) -> Any:
        """Send a request to the device and return its answer, for `Operation.ask_machine`."""

    def publish_here_too(self, change: DocumentChange) -> None:
        """Announce a new revision to all devices of the space, including this one."""

    async def close_others(self) -> None:
        """Close the other sessions of the space and wait until their tasks have ended. Raises
        RequestError on timeout.
        """


class SessionPart:
    """Base class of an add-on's part in each session.

    Attributes:
        operations: requests it answers once the space is open, from `Operation.by`. They name their projects themselves.
        early: requests it answers even while the space is locked.
        changing: the operations that change documents; they run to completion even if the connection ends.
    """

    operations: Mapping[str, Answerer] = MappingProxyType({})
    early: Mapping[str, Answerer] = MappingProxyType({})
    changing: Collection[str] = ()

    def use(self, space: Space) -> None:
        """Use this space from now on; called again if it was closed and reopened."""

    async def run(self) -> None:
        """Run the session's background work until cancelled."""


class Verbs(Protocol):
    """The verbs of the control socket, for operator commands
    (`confide_daemon.datadir.control_client`).
    """

    def add(
        self,
        name: str,
        answer: Callable[[Mapping[str, object]], Awaitable[dict[str, object]]],
        *,
        deadline_s: float = ...,
    ) -> None:
        """Answer `name` from now on; after `deadline_s` the command gets an error."""


class Gauges(Protocol):
    """The daemon's metrics."""

    def add(self, name: str, says: str, value: Callable[[], float | None]) -> None:
        """Add a gauge without labels; `name` excludes the prefix."""


class DaemonHost(Protocol):
    """The interface of the running daemon that add-ons use."""

    @property
    def state(self) -> RegistryState:
        """The opened data folder."""

    @property
    def config(self) -> DaemonConfig:
        """The settings from daemon.toml."""

    @property
    def config_file(self) -> Path | None:
        """The path of daemon.toml, which may not exist; None if unknown."""

    @property
    def is_on_demand(self) -> bool:
        """True if the proxy of this computer started the daemon."""

    @property
    def spaces(self) -> Spaces:
        """All spaces."""

    @property
    def registry(self) -> Registry:
        """The registry of keys that may connect."""

    @property
    def peers(self) -> Peers:
        """Other daemons that serve the same spaces; set once the daemon runs."""

    @property
    def verbs(self) -> Verbs:
        """The verbs of the control socket."""

    @property
    def gauges(self) -> Gauges:
        """The daemon's metrics."""

    async def is_cut_off(self) -> bool:
        """Return True if changes by other nodes may be unknown here; no new caller is then
        admitted.
        """

    def announce(self, space_id: str, change: DocumentChange) -> None:
        """Announce a revision that no device made to all devices of a space and all services."""


class ListeningSocket(Protocol):
    """A listening socket of the daemon."""

    async def open(self, host: str, port: int) -> None:
        """Accept connections from now on. Raises ListenError."""

    async def close(self) -> None:
        """Stop accepting connections."""


class PeersHost(DaemonHost, Protocol):
    """The interface of the running daemon that `Peers` uses."""

    @property
    def callers(self) -> CallerAuthorization:
        """The check that decides which keys may connect."""

    @property
    def timers(self) -> Timers:
        """The timers for its channels."""

    @property
    def revocations(self) -> Revocations | None:
        """The record of ended keys outside the data folder, if one is configured."""

    @property
    def answers_callers(self) -> bool:
        """True if a service answers callers that another node forwards."""

    @property
    def is_stopping(self) -> bool:
        """True once the daemon is stopping; nothing new may begin."""

    def keys(self) -> Keys:
        """Return the daemon keys that are in force."""

    def listener(self, authorize: Authorize, on_open: Callable[[Connection], Awaitable[None]]) -> ListeningSocket:
        """Return a separate listening socket for the keys that `authorize` accepts."""

    async def let_in(self, connection: Connection, *, is_passed_on: bool = False, is_by_http: bool = False) -> None:
        """Serve an opened channel until it ends, with the rights of its current caller."""

    def stop(self) -> None:
        """Stop the daemon in good order."""


class RemoteSpace(Protocol):
    """A channel to the node that holds a space, for one caller."""

    @property
    def connection(self) -> Connection:
        """The channel."""

    @property
    def node(self) -> int:
        """The number of that node."""


class Ways(Protocol):
    """Routes for HTTP callers of this node to the nodes that hold their spaces."""

    async def reach_by_http(self, caller: Caller, session_id: str) -> RemoteSpace | None:
        """Return a channel to the node that holds the caller's space, or None if this node must
        serve it.

        Raises EngineError if the holder cannot be determined, DeniedError or ConnectionLost if that
        node refuses.
        """

    def relying_on(self, far: Any) -> AbstractContextManager[None]:
        """Cut the channel when its node loses the space, and in any case at the end of the context."""


class Peers:
    """Base class for knowledge of other daemons that serve the same spaces. This one knows of none.

    Attributes:
        goodbye: the close code for sessions when the daemon ends.
        ways: the routes to other nodes; None without any.
        failure: the error with which the daemon ends, so that other nodes take over; None without one.
    """

    goodbye = "shutdown"
    ways: Ways | None = None
    failure: ConfideError | None = None

    async def confirm(self) -> None:
        """Load the changes of other nodes, before any caller is admitted."""

    async def open(self) -> None:
        """Accept connections of other nodes and follow their changes. Raises ListenError."""

    async def leave(self) -> None:
        """End the sessions forwarded to other nodes."""

    async def close(self) -> None:
        """End everything; the spaces are closed already."""

    async def is_cut_off(self) -> bool:
        """Return True if changes by other nodes may be unknown here; no new caller is then
        admitted.
        """
        return False

    def why_unready(self) -> str | None:
        """Return why this node should get no clients, as one word; None if it should."""

    def health_problems(self) -> set[str]:
        """Return its current problems, as `/health` names them."""
        return set()

    async def pass_on(self, connection: Connection, space_id: str, toll: RateLimit) -> bool:
        """Forward a caller's session to the node that holds its space, until it ends; return False
        if this node must serve it.
        """
        return False

    @property
    def forwarded_keys(self) -> set[bytes]:
        """The keys of callers with forwarded sessions."""
        return set()

    def shut_out(self, key: bytes, word: str) -> None:
        """End the forwarded sessions of a caller."""

    def is_live(self, public_key: bytes, session_id: str) -> bool:
        """Return True if a caller's session with this id is being forwarded."""
        return False


@dataclass(frozen=True, slots=True)
class HeldCopy:
    """A copy of a space that an add-on has made, and which may hold a forgotten text.

    Attributes:
        place, name: of what kind it is, and which one.
        level: what becomes of it, as a receipt says it (PROTOCOL.md 9.11).
    """

    place: str
    name: str
    level: str


class Service:
    """Base class of an add-on's work outside of sessions, for as long as the daemon runs.

    Attributes:
        answers_callers: True if it answers callers that another node forwards (PROTOCOL.md 12.5).
    """

    answers_callers = False

    async def open(self) -> None:
        """Start. Raises ConfideError to prevent the daemon's start."""

    async def close(self) -> None:
        """Stop, before the spaces are closed."""

    @property
    def is_busy(self) -> bool:
        """True if work is under way that the daemon's end would cut off."""
        return False

    @property
    def is_backed_up(self) -> bool | None:
        """True if a recent verified backup exists; None if it does not handle backups."""
        return None

    def health_problems(self) -> set[str]:
        """Return its current problems, as `/health` names them."""
        return set()

    def on_change(self, space_id: str, change: DocumentChange) -> None:
        """Handle a document's new revision."""

    def copies_of(self, space_id: str, before: float) -> Sequence[HeldCopy]:
        """Return its copies of a space from before a time, in seconds since 1970. Blocks."""
        return ()

    async def drop_copies(self, space_id: str, before: float) -> Sequence[str]:
        """Remove the space from the copies that `copies_of` returns, since a person had something
        forgotten; return their names. Raises ConfideError: a copy cannot be changed.
        """
        return ()

    def on_records_written(self, space_id: str) -> None:
        """Handle a change of the records beside the space's database (`DataFolder.forgotten_file`)."""

    def on_space_lost(self, space_id: str) -> None:
        """Handle the loss of a space to another node: clients that wait for its notifications must
        reconnect.
        """

    def on_revocations_written(self, files: Sequence[Path]) -> None:
        """Handle the write of revoked keys of devices into these files."""

    async def settle(self, space_id: str) -> None:
        """Wait until everything begun in the space has ended; the space accepts nothing new
        meanwhile.
        """

    async def serve(self, connection: Connection) -> None:
        """Answer the requests that another node forwards on this channel, until it ends."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check of `confided doctor`.

    Attributes:
        name: the name of the check, always the same.
        problem: the problem found, or None; `hint` says what to do.
        detail: the current state.
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
    """Base class of an add-on's half in the daemon. A subclass overrides what it provides.

    Attributes:
        toolsets: its tools, by the groups that clients select.
        prompts: prompts for the client's menu.
        views: pages that clients of other add-ons' services show beside results; without their tools, which are a device's.
    """

    toolsets: ClassVar[Mapping[str, Sequence[Tool]]] = {}
    prompts: ClassVar[Sequence[Prompt]] = ()
    views: ClassVar[Sequence[ResultView]] = ()

    def space(self, space: Space, config: DaemonConfig) -> Iterable[SpacePart]:
        """Return its parts for a space that is being opened."""
        return ()

    def session(self, session: SessionHost) -> Iterable[SessionPart]:
        """Return its parts for a new session."""
        return ()

    def service(self, daemon: DaemonHost) -> Service | None:
        """Return its service, or None if none is configured."""

    def peers(self, daemon: PeersHost) -> Peers | None:
        """Return its `Peers`, or None if none are configured."""

    def files(self, config: DaemonConfig) -> int:
        """Return how many files its service may hold open at once; reserving them keeps spaces from
        failing to open.
        """
        return 0

    def files_of_session(self, config: DaemonConfig) -> int:
        """Return how many files besides its connection each session may hold open."""
        return 0

    def revocation_folders(self, config: DaemonConfig) -> Mapping[str, str]:
        """Return folders outside the data folder that record ended keys, by the names of their
        options.

        A folder whose option ends with `to` may be absent for a while.
        """
        return {}

    def snapshots_to(self, config: DaemonConfig) -> str:
        """Return where `snapshot` would copy the data folder; empty for nowhere."""
        return ""

    def snapshot(self, folder: DataFolder, config: DaemonConfig, config_file: Path) -> str | None:
        """Copy the data folder before its upgrade; return the copy's name, or None if it makes no
        copies.

        No daemon serves the folder meanwhile. Raises ConfideError if it cannot be copied.
        """

    def checks(self, paths: DaemonPaths, follow: Callable[[str], None]) -> Iterable[Check]:
        """Yield its checks of this computer's configuration and data folder. `follow` is called
        with each step.
        """
        return ()


def revocation_folders(config: DaemonConfig) -> dict[str, str]:
    """Return the folders that record ended keys, by the names of their options."""
    return {option: place for addon in installed() for option, place in addon.revocation_folders(config).items()}


@cache
def installed() -> tuple[Addon, ...]:
    """Return the installed add-ons in the order of their names.

    Raises AddonError if one cannot be loaded. The daemon refuses to run without it: a space that
    has moved away, for instance, would be used again.
    """
    return tuple(addon() for addon in load_group(ADDONS))
