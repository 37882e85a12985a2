"""The seam: what an add-on is to the daemon, what the daemon asks of it, and what it promises (docs/addons.md).

An add-on is a capability in a folder of its own, which the core never names. The daemon finds it by the entry points of the group
`confide.addons.daemon`, each a subclass of `Addon`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any, ClassVar, Final, Protocol

from confide_crypto.transport.open import Connection
from confide_daemon.access.callers import Caller, Grants
from confide_daemon.access.registry import Registry
from confide_daemon.config import DaemonConfig
from confide_daemon.documents.changes import Change
from confide_daemon.sealing.rosters import RosterDesk
from confide_daemon.spaces.part import SpacePart
from confide_daemon.spaces.space import Space
from confide_daemon.tools.context import Prompt, Tool

GROUP: Final = "confide.addons.daemon"
Operation = Callable[..., Awaitable[dict[str, Any]]]
"""Answers a request of a machine; gets its fields as `confide_memory.requests` has them."""


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

    async def ask(self, op: str, body: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Make a request of the machine. Raises RequestError: it refuses; ConnectionLost, TimeoutError."""

    def publish_here_too(self, change: Change) -> None:
        """Tell all machines of the space of a new revision, this one among them."""

    async def close_others(self) -> None:
        """End the other sessions of the space, and wait until nothing of them runs. Raises RequestError: one does not end."""


class SessionPart:
    """Base of what an add-on has in each session.

    Attributes:
        operations: what it answers once the space is open, by the names of requests. They name their projects themselves.
        early: what it answers also while the space is locked.
        changing: those of them that change documents: they run to their end, whatever becomes of the connection.
    """

    operations: Mapping[str, Operation] = MappingProxyType({})
    early: Mapping[str, Operation] = MappingProxyType({})
    changing: Collection[str] = ()

    def use(self, space: Space) -> None:
        """Answer from this space from now on: it was opened, or closed meanwhile and opened again."""

    async def run(self) -> None:
        """Do what lasts as long as the session, until cancelled."""


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


@cache
def installed() -> tuple[Addon, ...]:
    """Return the add-ons that are installed, in the order of their names."""
    found = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    return tuple(entry.load()() for entry in found)
