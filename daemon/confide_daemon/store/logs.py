"""Interfaces to a shared store that keeps the logs of the spaces and of the registry
(docs/cluster.md).

The log has each change before the local database has it, so the database is a copy, which may exist
on several machines. Without `[store]` in daemon.toml the data folder alone counts, and nothing here
is used. An add-on implements the store; it is found by the entry points of the group
`confide.store`.
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
from confide_daemon.entry_points import load_group
from confide_daemon.errors import StorageError
from confide_daemon.store.space_store import Store

GROUP: Final = "confide.store"


class PreparedCopy(Protocol):
    """Result of bringing a local copy up to date before it is opened."""

    @property
    def documents(self) -> list[int]:
        """Documents whose derived rows must be made again before the first search."""


class Lease(Protocol):
    """The right to write to the log of one space, from its acquisition until its release."""

    @property
    def custody(self) -> Custody | None:
        """Custodian of the database's key, as the log records it. Raises StorageError: a newer
        version has written it.
        """

    def bring(self, path: Path, key: bytes) -> PreparedCopy:
        """Bring the local copy at `path`, which must not be open, up to date with the log. `key`: of
        the database, 32 bytes. Raises StorageError, EngineError.
        """

    def follow(self, path: Path, key: bytes) -> PreparedCopy:
        """Bring the local copy at `path`, which must not be open, up to date for reading. Changes
        nothing in the log. `key`: of the database, 32 bytes. Raises StorageError, EngineError.
        """

    def drop_overtaken(self, path: Path, key: bytes) -> bool:
        """Remove the local copy at `path`, which must not be open, if the log's snapshot is newer: it
        would be fetched again, and forgotten texts must not stay in it. Return True if it was removed.
        Raises StorageError.
        """

    def join(self, store: Store, opened: Any) -> None:
        """Send the store's writes to the log from now on; `opened` is the result of `bring`. Raises
        StorageError.
        """

    def discard(self, path: Path) -> None:
        """Mark a damaged copy, so that the next opening fetches it again."""

    def keep_custody(self, custody: Custody) -> None:
        """Record the key's custodian in the log, if it is missing there. Raises EngineError."""

    @property
    def warnings(self) -> Callable[[], list[str]]:
        """Function that returns warnings about the log for the users of the space."""


class Leases(Protocol):
    """The leases of a daemon's spaces. Call on the event loop, unless a method says otherwise.

    Attributes:
        on_lost: called with a space whose lease is lost, and True if another node holds it.
        failure: the reason why the store cannot be reached; None: it can.
    """

    on_lost: Callable[[str, bool], None]
    failure: Any

    def start(self) -> None:
        """Begin to send the node's sign of life, and continue until `close`."""

    async def close(self) -> None:
        """Release all leases."""

    async def confirm(self) -> None:
        """Check that the spaces still belong to this node, if the last check is longer ago than a
        node may be silent.
        """

    async def take(self, space_id: str, on_stale: Callable[[], None]) -> Lease:
        """Return the lease of a space. Raises FencedError: another node holds it; EngineError.

        `on_stale`: called on the space's writing thread when the log has changes that the local
        copy lacks.
        """

    def keep(self, space_id: str, lease: int | None) -> None:
        """Keep the lease of a closed space, because sessions on this node will use it again."""

    async def leave(self, space_id: str, lease: int | None = None) -> None:
        """Release a space, so that other nodes can take it."""

    def view(self, space_id: str) -> AbstractContextManager[Lease | None]:
        """Return a read-only view of a space's log at one moment, or None if there is no log. From
        any thread. Raises EngineError.
        """

    def spaces_with_logs(self) -> set[str]:
        """Return the spaces that have logs. From any thread. Raises EngineError."""


class RegistryLog(Protocol):
    """The log of the registry, which all nodes write to.

    Attributes:
        was_fetched: True if all rows were fetched since the last check; the reader resets it.
        failure: the error of the last attempt to follow the log; None: it succeeded.
    """

    was_fetched: bool
    failure: StorageError | None

    @property
    def kept_files(self) -> list[Path]:
        """Files with changes of this node that the log lost when it was restored to an earlier
        state.
        """

    def close(self) -> None:
        """Close the connections."""

    def exists(self) -> bool:
        """Return True if the log exists. Raises EngineError."""

    def begin(self, connection: apsw.Connection, *, holds: Callable[[apsw.Connection], bool]) -> str:
        """Synchronize the file and the log before the first use. Raises StorageError, EngineError."""

    def follow(self, connection: apsw.Connection) -> bool:
        """Apply the changes of other nodes; return True if there were any. Raises StorageError,
        EngineError.
        """

    def transaction(self, connection: apsw.Connection) -> AbstractContextManager[None]:
        """Return a transaction that sends its writes to the log first; if that fails, nothing is
        written. Raises EngineError.
        """

    def forget(self, connection: apsw.Connection) -> None:
        """Make the file independent and remove the log. Raises StorageError, EngineError."""

    def accept(self) -> list[Path]:
        """Continue from the state of the log; return the files that keep the changes it lacks."""

    def is_snapshot_due(self) -> bool:
        """Return True if the log is long enough for a snapshot."""

    def take_snapshot(self) -> None:
        """Write a snapshot of the whole registry to the log. Raises StorageError, EngineError."""


class LogStore(Protocol):
    """A shared store of logs."""

    def join(self, folder: DataFolder) -> None:
        """Replace the folder's keys and registry by those of the log, before they are opened.
        Raises DataFolderError, StorageError.
        """

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
        """Return the log of the registry; the file at `path` (key: 32 bytes) is its local copy.
        Raises StorageError.
        """

    def leases(self, folder: DataFolder) -> Leases:
        """Return the leases of a daemon. Raises StorageError."""

    def rotate(self, folder: DataFolder, *, keep_s: float) -> Keys:
        """Replace the daemon's key on all nodes. Raises RotationError, KeyFileError, EngineError."""

    def retire(self, folder: DataFolder) -> str | None:
        """Stop accepting the old key on all nodes. Raises RotationError, KeyFileError, EngineError."""

    def forgetting(self) -> AbstractContextManager[Callable[[str], None]]:
        """Yield a function that removes the log of a removed space. Raises EngineError if the store
        cannot be reached, before anything is removed.
        """


def log_store(config: DaemonConfig) -> LogStore | None:
    """Return the configured log store, or None if the data folder alone counts. Raises AddonError."""
    if not config.tables:
        return None
    for kept in load_group(GROUP):
        found: LogStore | None = kept.from_config(config)
        return found
    return None
