"""The seam: what an add-on is to the daemon, what the daemon asks of it, and what it promises (docs/addons.md).

An add-on is a capability in a folder of its own, which the core never names. The daemon finds it by the entry points of the group
`confide.addons.daemon`, each a subclass of `Addon`. What it reads of daemon.toml stands in `TABLES` of its package's `settings.py`.
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
from confide_daemon.entry_points import ADDONS, loaded
from confide_daemon.sealing.rosters import RosterDesk
from confide_daemon.spaces.part import SpacePart
from confide_daemon.spaces.pool import Spaces
from confide_daemon.spaces.space import Space
from confide_daemon.tools.tool_context import Prompt, Tool
from confide_memory.forms import Carried
from confide_memory.wire.operation import Answerer, Operation


class SessionHost(Protocol):
    """A machine's connection, as an add-on sees it."""

    @property
    def connection(self) -> Connection:
        """The channel, whose `session_id` names the session."""

    @property
    def desk(self) -> RosterDesk:
        """The devices of all spaces."""

    @property
    def registry(self) -> Registry:
        """Who may connect."""

    @property
    def grants(self) -> Grants:
        """What the caller may do now; nothing once its access has ended."""

    def caller_now(self) -> Caller:
        """Return the caller as it is now. Raises GrantError: its access has ended."""

    async def epoch_for(self, key: bytes) -> int | None:
        """Return the newest epoch of the space's devices for a key that is among them, else None."""

    async def ask(self, operation: Operation[Any, Any], body: Carried, timeout_s: float) -> Any:
        """What the machine answers, for `Operation.ask_machine`."""

    def publish_here_too(self, change: DocumentChange) -> None:
        """Tell all machines of the space of a new revision, this one among them."""

    async def close_others(self) -> None:
        """End the other sessions of the space, and wait until nothing of them runs. Raises RequestError: one does not end."""


class SessionPart:
    """Base of what an add-on has in each session.

    Attributes:
        operations: what it answers once the space is open, of `Operation.by`. They name their projects themselves.
        early: what it answers also while the space is locked.
        changing: those of them that change documents: they run to their end, whatever becomes of the connection.
    """

    operations: Mapping[str, Answerer] = MappingProxyType({})
    early: Mapping[str, Answerer] = MappingProxyType({})
    changing: Collection[str] = ()

    def use(self, space: Space) -> None:
        """Answer from this space from now on: it was opened, or closed meanwhile and opened again."""

    async def run(self) -> None:
        """Do what lasts as long as the session, until cancelled."""


class Verbs(Protocol):
    """What commands may ask of the running daemon (`confide_daemon.datadir.control_client`)."""

    def add(
        self,
        name: str,
        answer: Callable[[Mapping[str, object]], Awaitable[dict[str, object]]],
        *,
        deadline_s: float = ...,
    ) -> None:
        """Answer `name` from now on; whoever asked is told after `deadline_s` that it takes too long."""


class Gauges(Protocol):
    """The daemon's metrics."""

    def add(self, name: str, says: str, value: Callable[[], float | None]) -> None:
        """Show one series more, a gauge without labels; `name` is without the prefix."""


class DaemonHost(Protocol):
    """The running daemon, as an add-on sees it."""

    @property
    def state(self) -> RegistryState:
        """The data folder, opened."""

    @property
    def config(self) -> DaemonConfig:
        """What daemon.toml says."""

    @property
    def config_file(self) -> Path | None:
        """Where that is, or would be; None: nobody said."""

    @property
    def is_on_demand(self) -> bool:
        """Whether the machine that it serves has started it."""

    @property
    def spaces(self) -> Spaces:
        """All spaces."""

    @property
    def registry(self) -> Registry:
        """Who may connect."""

    @property
    def peers(self) -> Peers:
        """Other daemons that serve the same spaces, once it runs."""

    @property
    def verbs(self) -> Verbs:
        """What commands may ask of it."""

    @property
    def gauges(self) -> Gauges:
        """Its metrics."""

    async def is_cut_off(self) -> bool:
        """Return whether what others have changed may not be known here: then nobody new is let in."""

    def announce(self, space_id: str, change: DocumentChange) -> None:
        """Tell all machines of a space, and all services, of a revision that none of the machines made."""


class ListeningSocket(Protocol):
    """A socket of the daemon's."""

    async def open(self, host: str, port: int) -> None:
        """Take connections from now on. Raises ListenError."""

    async def close(self) -> None:
        """Take none any more."""


class PeersHost(DaemonHost, Protocol):
    """The running daemon, as it is seen by what knows of other daemons."""

    @property
    def callers(self) -> CallerAuthorization:
        """Who may come in."""

    @property
    def timers(self) -> Timers:
        """Of its channels."""

    @property
    def revocations(self) -> Revocations | None:
        """What is noted beside the data folder of keys that have ended."""

    @property
    def answers_callers(self) -> bool:
        """Whether a service answers callers that another node passes on."""

    @property
    def is_stopping(self) -> bool:
        """Whether nothing is to be begun any more."""

    def keys(self) -> Keys:
        """Return those that are in force."""

    def listener(self, authorize: Authorize, on_open: Callable[[Connection], Awaitable[None]]) -> ListeningSocket:
        """Return a socket of its own, for whom `authorize` lets in."""

    async def let_in(self, connection: Connection, *, is_passed_on: bool = False, is_by_http: bool = False) -> None:
        """Serve a channel until its end, for the caller that it is of by now."""

    def stop(self) -> None:
        """Ask the daemon to end in good order."""


class RemoteSpace(Protocol):
    """A channel to the node that holds a space, for one caller."""

    @property
    def connection(self) -> Connection:
        """The channel."""

    @property
    def node(self) -> int:
        """The number of that node."""


class Ways(Protocol):
    """The ways to nodes that hold spaces of callers who come to this one by HTTP."""

    async def reach_by_http(self, caller: Caller, session_id: str) -> RemoteSpace | None:
        """Return a channel to whoever holds the caller's space; None: this node is to serve it.

        Raises EngineError: nobody can be asked who that is; DeniedError, ConnectionLost: that node takes nothing.
        """

    def relying_on(self, far: Any) -> AbstractContextManager[None]:
        """Within this the channel is cut where its node does not hold the space any more; behind it in any case."""


class Peers:
    """Base of what knows of other daemons that serve the same spaces. This one knows of none.

    Attributes:
        goodbye: the word that sessions hear when the daemon ends.
        ways: to other nodes; None: there are none.
        failure: what the daemon ends with, so that others go on in its place; None: nothing.
    """

    goodbye = "shutdown"
    ways: Ways | None = None
    failure: ConfideError | None = None

    async def confirm(self) -> None:
        """Find out, before anybody is let in, what others have changed."""

    async def open(self) -> None:
        """Take connections of other nodes, and follow what these change. Raises ListenError."""

    async def leave(self) -> None:
        """End what is passed on to others."""

    async def close(self) -> None:
        """End all; the spaces are closed by now."""

    async def is_cut_off(self) -> bool:
        """Return whether what others have changed may not be known here: then nobody new is let in."""
        return False

    def why_unready(self) -> str | None:
        """Return a word for why nobody should be sent here; None: they may."""

    def health_problems(self) -> set[str]:
        """Return what of it does not work as it should, in words for `/health`."""
        return set()

    async def pass_on(self, connection: Connection, space_id: str, toll: RateLimit) -> bool:
        """Pass a caller's session on to whoever holds its space, until it ends; return False where this node is to serve it."""
        return False

    @property
    def passed_on(self) -> set[bytes]:
        """The keys of those whose sessions are passed on."""
        return set()

    def shut_out(self, key: bytes, word: str) -> None:
        """End the sessions of a caller that are passed on."""

    def is_live(self, public_key: bytes, session_id: str) -> bool:
        """Return whether a session of a caller with this id is passed on."""
        return False


class Service:
    """Base of what an add-on does beside the sessions for as long as the daemon runs.

    Attributes:
        answers_callers: it answers callers that another node passes on (PROTOCOL.md 12.5).
    """

    answers_callers = False

    async def open(self) -> None:
        """Begin. Raises ConfideError: then the daemon does not start."""

    async def close(self) -> None:
        """End what was begun, before the spaces are closed."""

    @property
    def is_busy(self) -> bool:
        """Whether something is under way that an end of the daemon would cut off."""
        return False

    @property
    def is_backed_up(self) -> bool | None:
        """Whether there is a proven backup that is young enough; None: it knows nothing of that."""
        return None

    def health_problems(self) -> set[str]:
        """Return what of it does not work as it should, in words for `/health`."""
        return set()

    def changed(self, space_id: str, change: DocumentChange) -> None:
        """A document of the space has a new revision."""

    def elsewhere(self, space_id: str) -> None:
        """Another node holds the space from now on: whoever waits for its news has to ask anew."""

    def revocations_written(self, files: Sequence[Path]) -> None:
        """The keys of machines that may not connect any more were written into these files."""

    async def settle(self, space_id: str) -> None:
        """Wait until nothing runs in the space that was begun before; the space takes no more meanwhile."""

    async def serve(self, connection: Connection) -> None:
        """Answer what another node passes on for the caller of this channel, until it ends."""


@dataclass(frozen=True, slots=True)
class Check:
    """What a look at one thing came to (`confided doctor`).

    Attributes:
        name: the same at every look.
        problem: what is wrong with it, and `hint` what to do; None where nothing is.
        detail: how it stands.
    """

    name: str
    problem: str | None = None
    hint: str | None = None
    detail: str | None = None

    @property
    def is_ok(self) -> bool:
        """Whether nothing is wrong with it."""
        return self.problem is None


class Addon:
    """Base of an add-on's half in the daemon. A subclass overrides what it has.

    Attributes:
        toolsets: its tools, by the groups that clients ask for.
        prompts: what a person chooses from a client's menu.
    """

    toolsets: ClassVar[Mapping[str, Sequence[Tool]]] = {}
    prompts: ClassVar[Sequence[Prompt]] = ()

    def space(self, space: Space, config: DaemonConfig) -> Iterable[SpacePart]:
        """Return what it has in a space that is being opened."""
        return ()

    def session(self, session: SessionHost) -> Iterable[SessionPart]:
        """Return what it has in a session that begins."""
        return ()

    def service(self, daemon: DaemonHost) -> Service | None:
        """Return what it does beside the sessions, None where nothing is configured."""

    def peers(self, daemon: PeersHost) -> Peers | None:
        """Return what knows of other daemons that serve the same spaces, None where nothing is configured."""

    def files(self, config: DaemonConfig) -> int:
        """Return how many files its service may hold at once: who comes there must not keep a space from being opened."""
        return 0

    def files_of_session(self, config: DaemonConfig) -> int:
        """Return how many files more than its connection each session may hold."""
        return 0

    def beside_the_data(self, config: DaemonConfig) -> Mapping[str, str]:
        """Return folders beside the data folder in which keys that end are noted, by the options that name them.

        One whose option ends with `to` may be taken away for a while.
        """
        return {}

    def snapshots_to(self, config: DaemonConfig) -> str:
        """Return where `snapshot` would copy the data folder; "": nowhere."""
        return ""

    def snapshot(self, folder: DataFolder, config: DaemonConfig, config_file: Path) -> str | None:
        """Copy the data folder as it is, before it is upgraded; return the copy's name, None: it copies nothing.

        Nobody serves the folder meanwhile. Raises ConfideError: it cannot be copied.
        """

    def checks(self, paths: DaemonPaths, follow: Callable[[str], None]) -> Iterable[Check]:
        """Look at what it has on this machine, where the configuration and the data folder can be read. `follow`: told of each step."""
        return ()


def beside_the_data(config: DaemonConfig) -> dict[str, str]:
    """Return the folders in which keys that end are noted, by the options that name them."""
    return {option: place for addon in installed() for option, place in addon.beside_the_data(config).items()}


@cache
def installed() -> tuple[Addon, ...]:
    """Return the add-ons that are installed, in the order of their names.

    Raises AddonError: one cannot be loaded. The daemon does not go on without it: a space that has moved away, say, would be used again.
    """
    return tuple(addon() for addon in loaded(ADDONS))
