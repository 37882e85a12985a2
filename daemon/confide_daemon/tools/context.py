"""What a tool may know and do: the caller's space, the projects of its connection, and the ways back to its machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from confide_daemon.access.grants import Grants
from confide_daemon.spaces.space import PutResult, Space
from confide_memory.document_path import GLOBAL_PROJECT as GLOBAL_PROJECT


class Machine(Protocol):
    """The caller's machine as a tool may use it; the session is one, and a caller without a proxy (the panel) is another."""

    async def write_back(self, project: str, path: str, result: PutResult, before: str | None) -> WrittenBack:
        """Bring a new revision to the caller's disk, merging with what a person has just written there."""
        ...

    async def take_away(self, project: str, path: str, revision: int, before: str | None) -> WrittenBack:
        """Remove the file of a deleted document from the caller's disk; one that a person has just edited brings the document back."""
        ...

    async def flush(self, project: str, path: str) -> None:
        """Take in what a person has just written to the file on the caller's machine, if anything."""
        ...

    async def backlog(self) -> Mapping[str, Any] | None:
        """What waits on the caller's machine to be sent; None if it does not say."""
        ...

    async def workplace(self, project: str) -> Mapping[str, Any] | None:
        """Where the agent works (PROTOCOL.md 9.4); None if its machine does not say."""
        ...

    async def scan(self, *, force: bool) -> Mapping[str, Any] | None:
        """Let the machine compare its files with the daemon's; None if it keeps none. Raises RequestError where it could not."""
        ...

    async def progress(self, done: float, total: float | None, message: str) -> None:
        """Tell a client that asked for it how far a long call is."""
        ...


@dataclass(frozen=True, slots=True)
class WrittenBack:
    """Whether a revision reached the caller's disk.

    Attributes:
        on_disk: the file on the caller's machine holds the document's newest revision.
        result: the newest revision, which is not the stored one where a person's edit was merged in.
        warning: why it is not on disk, for the agent.
    """

    on_disk: bool
    result: PutResult
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class ConnectionFacts:
    """What `memory_status` tells of the connection.

    Attributes:
        machine, proxy_version: as the proxy said at its attach; "" if it said nothing.
        last_sync: when the machine last compared its files (ISO 8601, UTC); None if it has not yet.
    """

    machine: str
    proxy_version: str
    space: str
    scope: str
    last_sync: str | None


@dataclass(frozen=True, slots=True)
class SealingFacts:
    """What `memory_status` tells of the space's sealed secrets, besides their number.

    Attributes:
        devices: how many may open them; 0 before there is a list of devices.
        epoch: of the key that they are sealed under now; 0 before there is one.
        custody: who keeps the key of the database: `server` or `caller`.
    """

    devices: int
    epoch: int
    custody: str


@dataclass(frozen=True, slots=True)
class ToolContext:
    """One tool call's surroundings.

    Attributes:
        rights: the caller's grants at the moment when it is asked.
        project: the project of the connection; None if it attached none.
        attached: all projects of the connection, the global one included if its folder is kept there.
        min_score: where the agent gives none.
        sealing: looks at the space's list of devices.
        operation: the id under which the machine may ask again for the same change; None where it gave none.
        said: when the call was made, by its machine's clock and in its time zone; None for now.
        sent: project and path of a file that the machine has put already, if it had changed, before it made the call.
    """

    space: Space
    machine: Machine
    rights: Callable[[], Grants]
    project: str | None
    attached: frozenset[str]
    facts: ConnectionFacts
    min_score: float
    sealing: Callable[[], Awaitable[SealingFacts]]
    operation: str | None = None
    said: datetime | None = None
    sent: tuple[Any, Any] | None = None

    @property
    def linked(self) -> frozenset[str]:
        """The projects that are linked with this one, as far as the caller reaches them."""
        linked = self.space.projects.linked(self.project) if self.project else frozenset()
        return frozenset(name for name in linked if self.grants.has_project(name))

    @property
    def grants(self) -> Grants:
        """What the caller may do now. Ask again after every wait."""
        return self.rights()


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answers: the structured form, and the compact text for clients that show only text."""

    structured: dict[str, Any]
    text: str
