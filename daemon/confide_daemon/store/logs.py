"""Interfaces to a shared store, which keeps a log of changes for each space and for the registry
(docs/cluster.md).

A change is in the log before it is in the local database, so the database is a copy, and several
machines may have one. Without `[store]` in daemon.toml only the data folder counts, and nothing
here is used. An add-on implements the store; it is found by the entry points of the group
`confide.store`. Errors of the store itself are raised as EngineError.
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
    """The result of bringing a local copy up to date before it is opened."""

    @property
    def documents(self) -> list[int]:
        """The ids of documents whose chunks and other derived rows must be made again before the
        first search.
        """


class Lease(Protocol):
    """The exclusive right of this node to write to the log of one space, until it is released."""

    @property
    def custody(self) -> Custody | None:
        """The record of the database's key and its keeper in the log, or None if the log has none.
        Raises StorageError if a newer version wrote the record.
        """

    def bring(self, path: Path, key: bytes) -> PreparedCopy:
        """Bring the local copy at `path` up to date with the log. The copy must not be open. `key`:
        the database's key, 32 bytes.

        Raises StorageError if the copy cannot be written, EngineError if the store fails.
        """

    def follow(self, path: Path, key: bytes) -> PreparedCopy:
        """Bring the local copy at `path` up to date for reading only, without any change to the
        log. The copy must not be open. `key`: the database's key, 32 bytes.

        Raises StorageError if the copy cannot be written, EngineError if the store fails.
        """

    def drop_overtaken(self, path: Path, key: bytes) -> bool:
        """Remove the local copy at `path` if the log has a newer snapshot; return True if it was
        removed. The copy must not be open.

        Such a copy would be fetched again anyway, and may contain texts that were forgotten since.
        Raises StorageError if it cannot be removed.
        """

    def join(self, store: Store, opened: Any) -> None:
        """Send all further writes of the store to the log. `opened`: the result of `bring`. Raises
        StorageError if the log cannot be used.
        """

    def discard(self, path: Path) -> None:
        """Mark a local copy as damaged, so that the next opening fetches it again."""

    def keep_custody(self, custody: Custody) -> None:
        """Write the record of the key and its keeper to the log, unless the log has one. Raises
        EngineError if the store fails.
        """

    @property
    def warnings(self) -> Callable[[], list[str]]:
        """A function that returns warnings about the log for the users of the space."""


class Leases(Protocol):
    """This node's leases: the exclusive rights to write to the logs of spaces. Call the methods on
    the event loop unless they say otherwise.

    Attributes:
        on_lost: called with a space's id when its lease is lost, and True if another node holds it.
        failure: the reason why the store cannot be reached, or None if it can.
    """

    on_lost: Callable[[str, bool], None]
    failure: Any

    def start(self) -> None:
        """Begin to report regularly to the store that this node is alive; continue until `close`."""

    async def close(self) -> None:
        """Release all leases of this node."""

    async def confirm(self) -> None:
        """Check that this node still holds its leases, unless a recent check has shown it."""

    async def take(self, space_id: str, on_stale: Callable[[], None]) -> Lease:
        """Acquire the exclusive right to write to a space's log, and return it. Raises FencedError
        if another node holds it, EngineError if the store fails.

        `on_stale`: called on the space's writer thread if the log has changes that the local copy
        lacks.
        """

    def keep(self, space_id: str, lease: int | None) -> None:
        """Keep the lease of a space that was closed, because sessions on this node will use it
        again.
        """

    async def leave(self, space_id: str, lease: int | None = None) -> None:
        """Release the lease of a space, so that another node can take it."""

    def view(self, space_id: str) -> AbstractContextManager[Lease | None]:
        """Return a read-only view of a space's log at one moment; it yields None if there is no
        log. Any thread may call this. Raises EngineError if the store fails.
        """

    def spaces_with_logs(self) -> set[str]:
        """Return the ids of the spaces that have logs. Any thread may call this. Raises EngineError
        if the store fails.
        """


class RegistryLog(Protocol):
    """The shared log of the registry. All nodes write to it.

    Attributes:
        was_fetched: True if all rows were fetched again; the reader sets it back to False.
        failure: the error of the last attempt to apply the log, or None if it succeeded.
    """

    was_fetched: bool
    failure: StorageError | None

    @property
    def kept_files(self) -> list[Path]:
        """Local copies of the registry from before the shared store was restored to an earlier
        state. They are listed until the operator accepts the restore.
        """

    def close(self) -> None:
        """Close the connections to the store."""

    def exists(self) -> bool:
        """Return True if the store has a log of the registry. Raises EngineError if the store
        fails.
        """

    def begin(self, connection: apsw.Connection, *, holds: Callable[[apsw.Connection], bool]) -> str:
        """Synchronize the local registry with the log before its first use; return a word for what
        was done. Raises StorageError if the local file cannot be used, EngineError if the store
        fails.

        `holds`: returns True if a database that is no copy of the log has content that could be
        lost.
        """

    def follow(self, connection: apsw.Connection) -> bool:
        """Apply the changes of other nodes to the local registry; return True if there were any.
        Raises StorageError if the local file cannot be written, EngineError if the store fails.
        """

    def transaction(self, connection: apsw.Connection) -> AbstractContextManager[None]:
        """Return a transaction that writes to the log before it commits locally. Raises EngineError
        if the log cannot be written; nothing is committed then.
        """

    def forget(self, connection: apsw.Connection) -> None:
        """Make the local registry independent and remove its log. Raises StorageError if the local
        file cannot be written, EngineError if the store fails.
        """

    def accept(self) -> list[Path]:
        """Accept that the shared store was restored to an earlier state. Return the files that keep
        the local copies from before.
        """

    def is_snapshot_due(self) -> bool:
        """Return True if the log has grown so long that a new snapshot should be written."""

    def take_snapshot(self) -> None:
        """Write a snapshot of the whole registry to the log. Raises StorageError if the registry
        cannot be read, EngineError if the store fails.
        """


class LogStore(Protocol):
    """A shared store with the logs of all spaces and of the registry."""

    def join(self, folder: DataFolder) -> None:
        """Replace the data folder's keys and registry by those in the store, before they are
        opened. Raises DataFolderError or StorageError if that is not possible.
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
        """Return the log of the registry. The file at `path` is its local copy, encrypted with
        `key` (32 bytes). Raises StorageError if the store's driver is not installed.
        """

    def leases(self, folder: DataFolder) -> Leases:
        """Return the object that acquires and renews a daemon's leases. Raises StorageError if the
        store cannot be used.
        """

    def rotate(self, folder: DataFolder, *, keep_s: float) -> Keys:
        """Replace the daemon's key on all nodes; the old one stays valid for `keep_s` seconds.

        Raises RotationError if a rotation is under way already, KeyFileError if a key file cannot
        be written, EngineError if the store fails.
        """

    def retire(self, folder: DataFolder) -> str | None:
        """Stop accepting the daemon's old key on all nodes. Return the old key as text, or None if
        its file was damaged.

        Raises RotationError if there is no old key, KeyFileError if its file cannot be deleted,
        EngineError if the store fails.
        """

    def forgetting(self) -> AbstractContextManager[Callable[[str], None]]:
        """Yield a function that removes the log of a space by its id. Raises EngineError, before
        anything is removed, if the store cannot be reached.
        """


def log_store(config: DaemonConfig) -> LogStore | None:
    """Return the configured shared store, or None if only the data folder counts. Raises AddonError
    if the add-on cannot be loaded.
    """
    if not config.tables:
        return None
    for kept in load_group(GROUP):
        found: LogStore | None = kept.from_config(config)
        return found
    return None
