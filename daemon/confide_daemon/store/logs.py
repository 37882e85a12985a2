"""Where the logs of the spaces and of the registry are, if not in the data folder alone: what the core asks of that.

A log has each change before the database here has it, so that the database is a copy, which may be on several machines. Without
`[store]` in daemon.toml none of this is there. What keeps logs is an add-on, found by the entry points of the group `confide.store`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Protocol

import apsw

from confide_daemon.config import DaemonConfig
from confide_daemon.datadir.daemon_keys import Keys
from confide_daemon.datadir.key_state import Custody
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.entry_points import loaded
from confide_daemon.errors import StorageError
from confide_daemon.store.space_store import Store

GROUP: Final = "confide.store"


class PreparedCopy(Protocol):
    """What was done to a copy before it is opened."""

    @property
    def documents(self) -> list[int]:
        """Those whose derived rows are to be made anew before anybody searches."""


class Lease(Protocol):
    """The right to write to the log of one space, from its taking until it is given back."""

    @property
    def custody(self) -> Custody | None:
        """Who keeps the key of the database, as the log says. Raises StorageError: a newer version has written it."""

    def bring(self, path: Path, key: bytes) -> PreparedCopy:
        """Have the copy as the log is; nobody has it open. Raises StorageError, EngineError."""

    def follow(self, path: Path, key: bytes) -> PreparedCopy:
        """The same without the right to write; nothing is changed in the log."""

    def join(self, store: Store, opened: Any) -> None:
        """Have what the store writes from now on go through the log; `opened`: what `bring` gave. Raises StorageError."""

    def discard(self, path: Path) -> None:
        """Have a damaged copy fetched anew by whoever opens it next."""

    def keep_custody(self, custody: Custody) -> None:
        """Have the log know who keeps the key, where it does not. Raises EngineError."""

    @property
    def warnings(self) -> Callable[[], list[str]]:
        """Gives what whoever uses the space should know of its log."""


class Leases(Protocol):
    """The leases of a daemon's spaces. On the event loop, but for what says otherwise.

    Attributes:
        on_lost: told of a space whose lease is lost, and whether another node holds it.
        failure: why the logs cannot be asked; None: they can.
    """

    on_lost: Callable[[str, bool], None]
    failure: Any

    def start(self) -> None:
        """Begin to be seen, and go on until `close`."""

    async def close(self) -> None:
        """Give back all of them."""

    async def confirm(self) -> None:
        """Ask, where nobody has for as long as a node may be silent, whether the spaces are still this node's."""

    async def take(self, space_id: str, on_stale: Callable[[], None]) -> Lease:
        """Return the lease of a space. Raises FencedError: another node holds it; EngineError."""

    def keep(self, space_id: str, lease: int | None) -> None:
        """Hold on to a space that is closed, since sessions are here that go on to use it."""

    async def leave(self, space_id: str, lease: int | None = None) -> None:
        """Let other nodes have a space."""

    def looked_at(self, space_id: str) -> AbstractContextManager[Lease | None]:
        """Give the log of a space as it is at one moment, to read alone; None: there is none. From any thread. Raises EngineError."""

    def logged(self) -> set[str]:
        """Return the spaces that have logs. From any thread. Raises EngineError."""


class RegistryLog(Protocol):
    """The log of the registry, which all nodes write to.

    Attributes:
        was_fetched: its rows were taken over whole since somebody has asked; whoever asks sets it back.
        failure: why it could not be followed the last time; None: it could.
    """

    was_fetched: bool
    failure: StorageError | None

    @property
    def kept(self) -> list[Path]:
        """What this machine had and the log has not, since it was put back to an earlier state."""

    def close(self) -> None:
        """End the connections."""

    def exists(self) -> bool:
        """Return whether there is a log yet. Raises EngineError."""

    def begin(self, connection: apsw.Connection, *, holds: Callable[[apsw.Connection], bool]) -> str:
        """Have the file and the log be one, before it is used. Raises StorageError, EngineError."""

    def follow(self, connection: apsw.Connection) -> bool:
        """Apply what other nodes have changed; return whether there was something. Raises StorageError, EngineError."""

    def transaction(self, connection: apsw.Connection) -> AbstractContextManager[None]:
        """All that is written within goes to the log first, or nothing is written. Raises EngineError."""

    def forget(self, connection: apsw.Connection) -> None:
        """Have the file be all there is, and remove the log. Raises StorageError, EngineError."""

    def accept(self) -> list[Path]:
        """Go on from what the log has; return what is kept of what it lacks."""

    def is_snapshot_due(self) -> bool:
        """Return whether the log is long enough for a snapshot."""

    def take_snapshot(self) -> None:
        """Put a copy of the whole into the log. Raises StorageError, EngineError."""


class LogStore(Protocol):
    """What keeps logs."""

    def join(self, folder: DataFolder) -> None:
        """Have the folder's keys and registry be those of the log, before they are opened. Raises DataFolderError, StorageError."""

    def registry(
        self,
        path: Path,
        key: bytes,
        *,
        schema: int,
        upgrade: Callable[[apsw.Connection], None],
        goes_on: Callable[[apsw.Connection, apsw.Connection], bool],
        carry_over: Callable[[apsw.Connection, apsw.Connection], None],
    ) -> RegistryLog:
        """Return the log of the registry, of which the file at `path` (under `key`, 32 bytes) is a copy. Raises StorageError."""

    def leases(self, folder: DataFolder) -> Leases:
        """Return the leases of a daemon. Raises StorageError."""

    def rotate(self, folder: DataFolder, *, keep_s: float) -> Keys:
        """Change the daemon's key on all nodes. Raises RotationError, KeyFileError, EngineError."""

    def retire(self, folder: DataFolder) -> str | None:
        """End its old key on all nodes. Raises RotationError, KeyFileError, EngineError."""

    def forgetting(self) -> AbstractContextManager[Callable[[str], None]]:
        """Give what removes the log of a space that was removed. Raises EngineError: it cannot be asked, before anything is removed."""


def log_store(config: DaemonConfig) -> LogStore | None:
    """Return what keeps logs, as it is configured; None: the files are all there is. Raises AddonError."""
    if not config.tables:
        return None
    for kept in loaded(GROUP):
        found: LogStore | None = kept.configured(config)
        return found
    return None
