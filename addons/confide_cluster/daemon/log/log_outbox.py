"""Writes changes of a space to its log: an entry is on PostgreSQL's disk before its transaction is
committed locally.

If PostgreSQL does not answer, it is unknown whether it has the entry. So nothing is committed
locally then, and before the next write the lease is taken again, which also ends a statement still
in progress. If the log is then ahead of the local copy, the space is closed and opened again with
all entries. A client that repeats its request gets the recorded result of the first one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import apsw

from confide_cluster.daemon.log import log_snapshot, replication_position
from confide_cluster.daemon.log.log_sealing import LogPosition, LogSealing, tag_of
from confide_cluster.daemon.log.log_tables import Appending, Log, LogStatus, fenced_error
from confide_cluster.daemon.log.replicated_tables import Recorder
from confide_daemon.errors import EngineError, FencedError, StorageError
from confide_daemon.store.database import storage_errors
from confide_daemon.store.migrations import version

log = logging.getLogger(__name__)

SNAPSHOT_ENTRIES: Final = 1000
"""Entries after a snapshot that require a new one: together they take a second to replay."""
SNAPSHOT_SHARE: Final = 4
"""A snapshot is also due when entries reach the file's size divided by this."""
LEAST_BYTES: Final = 2**20
REST_ENTRIES: Final = 200
"""Entries of a closed space that may be left to the node that opens it next."""


@dataclass
class Tail:
    """The size of the log since its last snapshot: the number and the bytes of its entries."""

    entries: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Sent:
    """The entry of a transaction in progress."""

    appending: Appending
    tag: bytes
    size_bytes: int


class LogOutbox:
    """The outbox of an open space, which writes its replicated changes to its log. Call its methods
    on the writer thread unless they say otherwise.

    Attributes:
        lease: the number of the lease under which it writes; taking the lease again increases it.
        schema: the number of the newest migration of the database.
        custody: the record of who keeps the key of the database after a change of the key that is
            in progress; None if there is none.
        tail: the size of the log since its last snapshot; readable from any thread.
    """

    def __init__(
        self,
        space_log: Log,
        standing: LogStatus,
        connection: apsw.Connection,
        *,
        path: Path,
        key: bytes,
        tail: Tail,
        on_stale: Callable[[], None],
    ) -> None:
        """Create the outbox of a copy that is up to date with its log.

        Args:
            connection: the one that writes.
            on_stale: called on the writer thread if the log is ahead of this copy: the space must be
                opened again.
        """
        self._log = space_log
        self._path = path
        self.schema = version(connection)
        self._on_stale = on_stale
        self.lease = standing.lease
        self.tail = tail
        self.custody: dict[str, object] | None = None
        self._is_doubtful = False
        self._is_stale = False
        self._snapshots = threading.Lock()
        self._following: bytes | None = None
        self.attach(connection, key)

    def attach(self, connection: apsw.Connection, key: bytes) -> None:
        """Write through this connection from now on, because the database file was replaced."""
        # The engine has the entry on its disk; what a power failure loses here is fetched.
        connection.execute("PRAGMA synchronous = NORMAL")
        found = replication_position.read(connection)
        if found is None:
            raise StorageError("the database of the space is not a copy of its log's")
        if self._following not in (None, key):
            # The log uses a key that the file did not get: the copy is fetched.
            self._be_stale()
        self._following = None
        self._connection = connection
        self._sealing = LogSealing(self._log.id, key)
        self._key = key
        self._number, self._tag = found.number, found.tag
        self._recorder = Recorder(connection)
        self._pending = found.pending
        self._recorder.carry(found.pending)

    def detach(self) -> None:
        """Stop recording and forget the key, before the connection is closed. Changes that are not
        sent yet are stored in the file.
        """
        self._recorder.close()
        self._key = b""

    @property
    def has_pending(self) -> bool:
        """True if some replicated changes are not in an entry yet, because their transaction sends
        none or they were made after its entry was sent. Readable from any thread.
        """
        return bool(self._pending)

    @contextmanager
    def transaction(self, *, is_derived: bool) -> Iterator[Callable[[], None]]:
        """Run a transaction, which is committed locally only once its replicated changes are in the
        log. With `is_derived` it sends no entry; any replicated changes in it wait for the next
        one.

        Yields a function to call when all replicated changes are made and only derived ones follow.
        The function sends the entry, so that derived rows are computed while PostgreSQL writes to
        its disk. All later changes count as derived.

        Raises EngineError if it is unknown whether the log has the entry; the local database does
        not have it then.
        """
        if not is_derived:
            self._settle_doubt()
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        sent: _Sent | None = None

        def send() -> None:
            nonlocal sent
            if not is_derived and sent is None and (patchset := self._recorder.patchset()):
                sent = self._send(patchset)
                self._recorder.restart(is_deriving=True)

        try:
            yield send
            send()
            if sent is not None:
                self._recorder.end_derived()
            if rest := self._recorder.patchset():
                replication_position.keep(connection, rest)
            if sent is not None and not sent.appending.is_stored():
                raise fenced_error()
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if sent is not None:
                sent.appending.drop()
                self._recorder.restart()
                self._recorder.carry(self._pending)
            raise
        self._pending = rest
        if sent is not None:
            self._is_doubtful = False
            self._number, self._tag = self._number + 1, sent.tag
            self.tail.entries += 1
            self.tail.size_bytes += sent.size_bytes

    def flush(self) -> None:
        """Send the changes that are in no entry yet. Raises EngineError if PostgreSQL is
        unavailable, and StorageError if the new position cannot be stored locally.
        """
        with storage_errors("bring what waits to the log"), self.transaction(is_derived=False):
            pass

    def is_snapshot_due(self, *, at_rest: bool = False) -> bool:
        """Return True if the log has grown enough since its last snapshot. With `at_rest` the space
        is about to be closed, and fewer entries suffice. Thread-safe.
        """
        entries = REST_ENTRIES if at_rest else SNAPSHOT_ENTRIES
        try:
            enough = max(LEAST_BYTES, self._path.stat().st_size // SNAPSHOT_SHARE)
        except OSError:
            return False
        return self.tail.entries >= entries or self.tail.size_bytes >= enough

    def take_snapshot(self) -> None:
        """Upload a snapshot of the committed state while others may write. Thread-safe. Raises
        StorageError if that fails.
        """
        with self._snapshots:
            if self._following is not None or not self._key:
                return  # a change of the key brings its own; or the space was closed meanwhile
            key = self._key
            copy = log_snapshot.copy_beside(self._path, key)
            try:
                self._bring(copy, key, custody=None)
            finally:
                copy.unlink(missing_ok=True)

    def bring(self, copy: Path, key: bytes) -> None:
        """Upload `copy`, which is encrypted under the new `key`, as the log's snapshot, before it
        replaces the file.

        Call on the writer thread, so that nothing is written in between. Raises FencedError if the
        lease was lost, and StorageError if it is unknown which of the two keys the log uses.
        """
        with self._snapshots:
            self._following = key
            try:
                self._bring(copy, key, custody=self.custody)
            except FencedError:
                self._following = None
                raise
            except StorageError:
                self._be_stale()  # unknown: which of the two keys the log uses
                raise

    def _bring(self, copy: Path, key: bytes, *, custody: dict[str, object] | None) -> None:
        # The lease of the upload: a node that has taken the lease since has deleted unfinished
        # parts, even if this node has the space again by now.
        lease, size = self.lease, self.tail.size_bytes
        found, schema = log_snapshot.position(copy, key)
        sealing = LogSealing(self._log.id, key)
        number = log_snapshot.upload(self._log.bring_part, sealing, copy, found)
        self._log.settle(number, lease, base=found.number, tag=found.tag, schema=schema, custody=custody)
        # Later writes are entries after it.
        self.tail.entries = self._number - found.number
        self.tail.size_bytes = max(0, self.tail.size_bytes - size)

    def discard(self) -> None:
        """Mark the local copy as damaged, so that it is not read again, and is fetched when the
        space is next opened.
        """
        log_snapshot.discard_marker(self._path).touch(mode=0o600)
        self._be_stale()

    def _be_stale(self) -> None:
        self._is_stale = True
        self._on_stale()

    def _send(self, patchset: bytes) -> _Sent:
        number = self._number + 1
        body = self._sealing.seal(LogPosition(number, self.lease, self.schema, self._tag), patchset)
        # Write locally first: a change for which the disk has no space must not be in the log.
        replication_position.write(self._connection, number, tag_of(body))
        self._is_doubtful = True  # until it is answered for, and committed here
        return _Sent(self._log.send(number, self.lease, self.schema, body), tag_of(body), len(body))

    def _settle_doubt(self) -> None:
        if self._following is not None:
            self._be_stale()  # the log is under a key that the file did not get
        if self._is_stale:
            raise _renewing_error()
        if not self._is_doubtful:
            return
        standing = self._log.take(anew=True)
        self.lease = standing.lease
        if standing.head != self._number or not self._log.has(self._number, self._tag, standing):
            log.warning("the log of space %s has another end than this copy: it is opened again", self._log.id)
            self._be_stale()
            raise _renewing_error()
        self._is_doubtful = False


def _renewing_error() -> EngineError:
    return EngineError(
        "cannot write to the space: it is brought up to date with its log", hint="send it again in a moment"
    )
