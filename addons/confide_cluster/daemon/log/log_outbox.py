"""The way of a write into the log: its entry is on the engine's disk before it is committed here.

What becomes of an entry that is not answered for, nobody can know by thinking. So nothing is stored here then, and before the next write
the lease is taken anew, which also ends a statement that is still on its way. Where the log has more than this copy by then, the space is
closed and opened again, with all that the log has; the caller's repeat finds the row of its operation.
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
from confide_cluster.daemon.log.log_tables import Appending, Log, LogStatus, fenced
from confide_cluster.daemon.log.replicated_tables import Recorder
from confide_daemon.errors import EngineError, FencedError, StorageError
from confide_daemon.store.database import storage_errors
from confide_daemon.store.migrations import version

log = logging.getLogger(__name__)

SNAPSHOT_ENTRIES: Final = 1000
"""So many entries behind a snapshot, a new one is due: a second of replaying."""
SNAPSHOT_SHARE: Final = 4
"""Or entries of a quarter of the file's size."""
LEAST_BYTES: Final = 2**20
REST_ENTRIES: Final = 200
"""Of a space that is closed, so many may be left to whoever opens it next."""


@dataclass
class Tail:
    """What is in the log behind its snapshot."""

    entries: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Sent:
    """The entry of a transaction that is under way."""

    appending: Appending
    tag: bytes
    size_bytes: int


class LogOutbox:
    """One for an open space; used in its writer's thread, but for what says otherwise.

    Attributes:
        lease: the number under which is written; a doubt counts it up.
        schema: the newest migration of the database.
        custody: who will keep the key of the database once a change of it that is under way is done, for the log.
        tail: read from any thread.
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
        """A copy that has all that the log has.

        Args:
            connection: the one that writes.
            on_stale: told, in the writer's thread, that the log has what this copy has not: the space has to be opened anew.
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
        """The connection that writes is this one from now on, since the file was replaced."""
        # The engine has it on its disk; what a power cut takes here is fetched.
        connection.execute("PRAGMA synchronous = NORMAL")
        found = replication_position.read(connection)
        if found is None:
            raise StorageError("the database of the space is not a copy of its log's")
        if self._following not in (None, key):
            # The log is under a key that the file did not get: it is fetched.
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
        """The connection is about to be closed; what waits is in the file."""
        self._recorder.close()
        self._key = b""

    @property
    def has_pending(self) -> bool:
        """Whether truths wait here that changed with what is derived; read from any thread."""
        return bool(self._pending)

    @contextmanager
    def transaction(self, *, is_derived: bool) -> Iterator[Callable[[], None]]:
        """All that is written inside, or nothing; unless all of it is derived, its truths are in the log when this ends.

        Gives what is to be called once all truths are written, if anything derived of them comes behind: they are on their way from then
        on, and what is derived is made while the engine's disk is waited for. It counts as what is derived whatever it changes.

        Raises EngineError: nobody knows whether it is in the log, and it is not here.
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
                self._recorder.derived()
            if rest := self._recorder.patchset():
                replication_position.keep(connection, rest)
            if sent is not None and not sent.appending.is_stored():
                raise fenced()
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
        """Bring what waits to the log. Raises EngineError; StorageError: it cannot be noted here."""
        with storage_errors("bring what waits to the log"), self.transaction(is_derived=False):
            pass

    def is_snapshot_due(self, *, at_rest: bool = False) -> bool:
        """Whether the tail is long; any thread may ask. `at_rest`: nobody uses the space, and it is about to be closed."""
        entries = REST_ENTRIES if at_rest else SNAPSHOT_ENTRIES
        try:
            enough = max(LEAST_BYTES, self._path.stat().st_size // SNAPSHOT_SHARE)
        except OSError:
            return False
        return self.tail.entries >= entries or self.tail.size_bytes >= enough

    def take_snapshot(self) -> None:
        """Bring a snapshot of what is committed to the engine; any thread may, while others write. Raises StorageError."""
        with self._snapshots:
            if self._following is not None or not self._key:
                return  # a change of the key brings its own; or the space was closed meanwhile
            key = self._key
            copy = log_snapshot.copied(self._path, key)
            try:
                self._bring(copy, key, custody=None)
            finally:
                copy.unlink(missing_ok=True)

    def bring(self, copy: Path, key: bytes) -> None:
        """Make a copy under another key the snapshot of the log, before it takes the place of the file. Raises StorageError; FencedError.

        In the writer's thread, so that nothing is written between the two.
        """
        with self._snapshots:
            self._following = key
            try:
                self._bring(copy, key, custody=self.custody)
            except FencedError:
                self._following = None
                raise
            except StorageError:
                self._be_stale()  # nobody knows which of the two keys the log is under
                raise

    def _bring(self, copy: Path, key: bytes, *, custody: dict[str, object] | None) -> None:
        # The one that it has been brought under: who has taken another lease since has removed parts that were no snapshot yet, also where
        # this node has the space again by now.
        lease, size = self.lease, self.tail.size_bytes
        found, schema = log_snapshot.position(copy, key)
        sealing = LogSealing(self._log.id, key)
        number = log_snapshot.upload(self._log.bring_part, sealing, copy, found)
        self._log.settle(number, lease, base=found.number, tag=found.tag, schema=schema, custody=custody)
        # What was written meanwhile is behind it.
        self.tail.entries = self._number - found.number
        self.tail.size_bytes = max(0, self.tail.size_bytes - size)

    def discard(self) -> None:
        """This copy is damaged: it is not read any more, and fetched anew when the space is opened."""
        log_snapshot.discarded(self._path).touch(mode=0o600)
        self._be_stale()

    def _be_stale(self) -> None:
        self._is_stale = True
        self._on_stale()

    def _send(self, patchset: bytes) -> _Sent:
        number = self._number + 1
        body = self._sealing.seal(LogPosition(number, self.lease, self.schema, self._tag), patchset)
        # Here first: what the disk has no room for must not be in the log.
        replication_position.write(self._connection, number, tag_of(body))
        self._is_doubtful = True  # until it is answered for, and committed here
        return _Sent(self._log.send(number, self.lease, self.schema, body), tag_of(body), len(body))

    def _settle_doubt(self) -> None:
        if self._following is not None:
            self._be_stale()  # the log is under a key that the file did not get
        if self._is_stale:
            raise _being_renewed()
        if not self._is_doubtful:
            return
        standing = self._log.take(anew=True)
        self.lease = standing.lease
        if standing.head != self._number or not self._log.has(self._number, self._tag, standing):
            log.warning("the log of space %s has another end than this copy: it is opened anew", self._log.id)
            self._be_stale()
            raise _being_renewed()
        self._is_doubtful = False


def _being_renewed() -> EngineError:
    return EngineError(
        "cannot write to the space: it is brought up to date with its log", hint="send it again in a moment"
    )
