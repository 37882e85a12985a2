"""A small database, the registry, of which every node has a full copy that it may write to
(docs/decisions/0030).

To write, a node locks the row of the registry's log in PostgreSQL, for which other nodes wait. It
applies the entries that its copy lacks, makes its change, and commits the entry in PostgreSQL
before it commits locally. The row lock thus orders the writes, and no lease is needed: if an invite
is used twice at the same time, the second use finds it used. A statement without an answer keeps
the lock until it is committed or rolled back, so the next writer sees its result. Nothing is
concluded from a missing answer.

Between writes each node reads the end of the log a few times a second, and applies new entries.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import apsw

from confide_cluster.daemon.log import log_snapshot
from confide_cluster.daemon.log.log_outbox import LEAST_BYTES, SNAPSHOT_SHARE
from confide_cluster.daemon.log.log_sealing import GENESIS, TAG_BYTES, LogPosition, LogSealing, tag_of
from confide_cluster.daemon.log.log_tables import PARTS_S, Log, LogRow
from confide_cluster.daemon.log.postgres_engine import DriverError, Far, PostgresEngine
from confide_cluster.daemon.log.replicated_tables import REGISTRY_DERIVED, LogReplay, Recorder, truths
from confide_cluster.daemon.log.replication_position import Shipped
from confide_cluster.errors import LogError
from confide_daemon.errors import EngineError, OvertakenError, StorageError
from confide_daemon.store.database import connect, is_copy, stand_alone, storage_errors, transaction

log = logging.getLogger(__name__)

REGISTRY: Final = "registry"
"""The id of the registry's log; those of spaces are hexadecimal."""
WAIT_S: Final = 2
"""Time limit for the row lock while another node writes."""
STALL_S: Final = 5
"""A silent node (one that was stopped) loses the row lock after this time: a change takes
milliseconds.
"""
MOST_ENTRIES: Final = 20_000
"""Most entries after a snapshot, whatever the size of both: three seconds of replay. Before that,
entries of a quarter of the registry's size require one. A fixed thousand entries, half a megabyte,
would rewrite a registry of hundreds of megabytes for each thousand.
"""
_TRIES: Final = 4
"""Other nodes may replace snapshots and entries while they are fetched."""
_FEW: Final = 8
"""Entries left to apply under the row lock: together they take as long as three applied one by one.
"""
_MEANWHILE_S: Final = 0.005
"""Interval for applying others' entries while waiting for the row lock."""
_SNAPSHOT_LOCK: Final = 0x636F6E67
_LEASE: Final = 0  # of its entries: the row decides
_FETCHED: Final = ".fetched"
_KEPT: Final = {"ahead": ".ahead", "before": ".before"}
_TAKE_ROW: Final = """
    BEGIN; SET LOCAL lock_timeout = '{wait_s}s'; SET LOCAL idle_in_transaction_session_timeout = '{stall_s}s';
    SELECT 1 FROM log WHERE id = '{registry}' FOR UPDATE
"""
_STANDING: Final = """
    SELECT head, base, tag, snapshot, schema,
           (SELECT substring(body FROM length(body) - %(last)s) FROM entry WHERE log = log.id AND number = log.head),
           (SELECT substring(body FROM length(body) - %(last)s) FROM entry WHERE log = log.id AND number = %(number)s)
    FROM log WHERE id = %(id)s
"""
_APPEND: Final = """
    WITH moved AS (
        UPDATE log SET head = %(number)s, schema = %(schema)s WHERE id = %(id)s AND head = %(number)s - 1 RETURNING id
    )
    INSERT INTO entry SELECT id, %(number)s, %(lease)s, %(schema)s, %(body)s FROM moved
"""
_POSITION: Final = """
    CREATE TABLE IF NOT EXISTS shipped (
        id     INTEGER PRIMARY KEY CHECK (id = 1),
        number INTEGER NOT NULL,                  -- of the last entry that is in this copy
        tag    BLOB    NOT NULL                   -- of that entry
    )
"""

Upgrade = Callable[[apsw.Connection], None]
"""Migrates a copy of an older version to this version's schema, in a transaction."""
GoesOn = Callable[[apsw.Connection, apsw.Connection], bool]
"""Returns True if the first registry, the store's, contains all that happened to the second, the
local copy.
"""
CarryOver = Callable[[apsw.Connection, apsw.Connection], None]
"""Reduces the access in the first registry, a restored one, to what the second gives; called in a
transaction of the first.
"""


@dataclass(frozen=True, slots=True)
class _Standing:
    """The status of the log, and its content at the position that this copy had before the query."""

    position: Shipped
    """The position of this copy. Another process of this node may have advanced it since: a later
    read may be ahead of this status.
    """
    head: int
    base: int
    tag: bytes  # of the last entry
    snapshot: int | None
    schema: int
    here: bytes | None  # of the entry that this copy has last; None: it is in no entry any more


class SharedLog:
    """The registry's log and the local copy of the registry, for one process. Two threads must not
    use it with the same connection at the same time.
    """

    def __init__(
        self,
        engine: PostgresEngine,
        path: Path,
        key: bytes,
        *,
        schema: int,
        upgrade: Upgrade,
        goes_on: GoesOn,
        carry_over: CarryOver,
    ) -> None:
        """Prepare the log; `begin` synchronizes it.

        Args:
            path: the file of the local copy.
            key: of that database, 32 bytes.
            schema: the newest migration of this version.
            upgrade: migrates a copy of an older version.
            goes_on: checks if a restored store contains all that happened to the local copy.
            carry_over: repeats in a restored store what took access away since.
        """
        self._engine = engine
        self._log = Log(engine, REGISTRY, lambda: 0, 0.0)
        self._sealing = LogSealing(REGISTRY, key)
        self._path = path
        self._key = key
        self._schema = schema
        self._upgrade = upgrade
        self._goes_on = goes_on
        self._carry_over = carry_over
        self.was_fetched = False
        """True if all rows were replaced since the flag was last read; the reader resets it."""
        self._has_news = False  # applied during a write of this node, and not reported by `follow` yet
        self.failure: StorageError | None = None
        """Why the last attempt to follow failed, if it did; readable from any thread."""

    def close(self) -> None:
        self._engine.close()

    @property
    def kept_files(self) -> list[Path]:
        """The local copies from before PostgreSQL was restored to an earlier state. No new device
        or client is admitted until the operator accepts the restore.
        """
        return sorted(self._path.parent.glob(f"{self._path.name}{_KEPT['ahead']}*"))

    def accept(self) -> list[Path]:
        """Record that the operator accepts the restored PostgreSQL, by renaming the earlier local
        copies. Return their new paths.
        """
        accepted = []
        for path in self.kept_files:
            accepted.append(log_snapshot.free(self._path, _KEPT["before"]))
            path.rename(accepted[-1])
        return accepted

    def exists(self) -> bool:
        """Return True if PostgreSQL has a registry. Raises EngineError if it is unavailable."""
        self._engine.ready()
        return self._look(None) is not None

    def begin(
        self, connection: apsw.Connection, *, holds: Callable[[apsw.Connection], bool]
    ) -> Literal["brought", "fetched", "followed"]:
        """Synchronize the local copy and the log before use. Return `brought` if the copy was
        uploaded, `fetched` if it was replaced, or `followed` if it was updated.

        `holds` is called with a database that is not a copy of the log, and returns True if it has
        content that could be lost.

        Raises EngineError if PostgreSQL is unavailable; LogError if the log differs from what was
        written; StorageError if the log is of a newer version, or PostgreSQL has lost it.
        """
        log_snapshot.sweep(self._path)
        log_snapshot.remove(self._path.with_name(self._path.name + _FETCHED))
        self._engine.ready()
        standing = self._look(connection)
        if standing is None:
            if is_copy(connection):
                raise StorageError(
                    "cannot use the registry: the store has nothing of it, and this machine has",
                    hint="is url of [store] the right one? then stop the daemon, and say confided store --to with that address",
                )
            self.bring(connection)
            return "brought"
        self._require_known(standing.schema)
        if not is_copy(connection):
            if holds(connection):
                log.warning("the registry is the store's; what was here is kept as %s", self._keep("before").name)
            self._fetch(connection)
            return "fetched"
        if standing.schema < self._schema:
            self._take_step(connection)
        self.follow(connection)
        return "followed"

    def follow(self, connection: apsw.Connection) -> bool:
        """Apply new entries; return True if there were any since the last call.

        Raises EngineError if PostgreSQL is unavailable; LogError if the log differs from what was
        written; StorageError if the log is of a newer version, or was lost.
        """
        try:
            was_new = self._follow(connection) or self._has_news
            self._has_news, self.failure = False, None
            return was_new
        except StorageError as error:
            self.failure = error
            raise

    @contextmanager
    def transaction(self, connection: apsw.Connection) -> Iterator[None]:
        """Commit all changes in the block on PostgreSQL's disk and then locally, or none of them.

        Raises EngineError if PostgreSQL is unavailable or the outcome is unknown; the local copy
        does not have the changes then.
        """
        _require_copy(connection)
        failure: BaseException | None = None
        with self._engine.connection() as far:
            position = self._take_row(far, connection)
            connection.execute("BEGIN IMMEDIATE")
            try:
                with closing(Recorder(connection, REGISTRY_DERIVED)) as recorder:
                    yield
                    patchset = recorder.patchset()
                if patchset:
                    self._append(far, connection, position, patchset)
                    far.execute("COMMIT")
                else:
                    far.execute("ROLLBACK")
            except BaseException as error:
                _undo(connection)
                if isinstance(error, DriverError):
                    raise  # its outcome is unknown: the connection is closed, and the next one waits for the row
                failure = error
                far.execute("ROLLBACK")
        if failure is not None:
            raise failure
        try:
            connection.execute("COMMIT")
        except BaseException:
            _undo(connection)  # it is in the log, and comes from there
            raise

    def _append(self, far: Far, connection: apsw.Connection, position: Shipped, patchset: bytes) -> None:
        """Send an entry in both transactions, neither of which is committed yet. Raises
        EngineError: the log has advanced.
        """
        place = LogPosition(position.number + 1, _LEASE, self._schema, position.tag)
        body = self._sealing.seal(place, patchset)
        _write(connection, place.number, tag_of(body))  # before it is sent: the disk may have no room
        values = {"id": REGISTRY, "number": place.number, "lease": _LEASE, "schema": self._schema, "body": body}
        if far.execute(_APPEND, values).rowcount != 1:
            raise EngineError("cannot write to the registry: its log was changed meanwhile", hint="try again")

    def bring(self, connection: apsw.Connection) -> None:
        """Upload the local database as the start of the log.

        Raises EngineError if a log exists by now.
        """
        with transaction(connection):
            stand_alone(connection)
            _place(connection, 0, GENESIS)
        try:
            self._upload(is_first=True)
        except BaseException:
            with transaction(connection):
                stand_alone(connection)
            raise

    def take_snapshot(self) -> None:
        """Upload a snapshot of the committed state, and delete the entries that it contains. Do
        nothing while another node does so.
        """
        self._upload(is_first=False)

    def _take_step(self, connection: apsw.Connection) -> None:
        """Migrate the log to this version: older nodes can no longer read or write it.

        The entries of older nodes are applied to a copy with their schema before its migration;
        after the snapshot there are none of them. Raises EngineError: older nodes write without a
        pause.
        """
        for _ in range(_TRIES):
            standing = self._look(connection)
            if standing is None or standing.schema >= self._schema:
                return  # another node has done it
            if (self._position(connection).number, self._position(connection).tag) != (standing.head, standing.tag):
                self._fetch(connection)
            if self._upload(is_first=False):
                log.warning("the registry is of this version from now on: nodes of an older one end")
                return
        raise EngineError(
            "cannot upgrade the registry: other nodes write to it all the time", hint="try again in a moment"
        )

    def is_snapshot_due(self) -> bool:
        """Return True if a new node would have to replay so many entries that a snapshot is worth
        its cost. Raises EngineError if PostgreSQL is unavailable.
        """
        statement = """SELECT head - base, (SELECT coalesce(sum(length(body)), 0)::bigint FROM entry WHERE log = log.id AND number > base)
                       FROM log WHERE id = %(id)s"""
        _, rows = self._engine.run(statement, {"id": REGISTRY})
        entries, size_bytes = rows[0] if rows else (0, 0)
        enough = max(LEAST_BYTES, self._path.stat().st_size // SNAPSHOT_SHARE)
        return int(entries) >= MOST_ENTRIES or int(size_bytes) >= enough

    def forget(self, connection: apsw.Connection) -> None:
        """Make the local file independent of the log, and delete the log. Raises EngineError if
        PostgreSQL is unavailable.
        """
        self.follow(connection)
        with transaction(connection):
            stand_alone(connection)
        with self._engine.connection(deadline_s=PARTS_S) as far, far.transaction():
            for table, column in (("log", "id"), ("entry", "log"), ("part", "log")):
                far.execute(f"DELETE FROM {table} WHERE {column} = %s".encode(), (REGISTRY,))  # noqa: S608 - ours

    # Following

    def _follow(self, connection: apsw.Connection) -> bool:
        _require_copy(connection)
        for _ in range(_TRIES):
            standing = self._look(connection)
            if standing is None:
                raise StorageError("cannot follow the registry: the store has nothing of it any more")
            self._require_known(standing.schema)
            position = standing.position
            if (position.number, position.tag) == (standing.head, standing.tag):
                return False
            if position.number < standing.base:
                self._fetch(connection)
                return True
            if position.number > standing.head or standing.here != position.tag:
                self._fetch(connection, is_back=True)
                return True
            entries = list(self._log.entries(position.number))
            if entries and entries[0].number == position.number + 1:
                self._apply(connection, entries)
                return True
        raise EngineError("cannot follow the registry: its log changes all the time", hint="it is tried again")

    def _take_row(self, far: Far, connection: apsw.Connection) -> Shipped:
        """Lock the row until the engine's transaction ends, with all earlier entries applied
        locally.

        Entries of others are applied before the lock and while waiting for it, so that few are left
        while others wait. Raises EngineError: the copy must be fetched, which takes longer.
        """
        self._apply_new(far, connection, self._standing(far, connection), most_left=_FEW)
        far.ask(_take_row())
        while not far.is_answered(_MEANWHILE_S):
            with self._engine.spare() as other:
                if other is not None:
                    self._apply_new(other, connection, self._standing(other, connection), most_left=_FEW)
        far.finish()
        standing = self._standing(far, connection)
        if standing is None:
            raise StorageError("cannot use the registry: the store has nothing of it")
        self._require_known(standing.schema)
        with _commit_lazily(connection):  # the change that follows is, when others do not wait any more
            self._apply_new(far, connection, standing)
        position = self._position(connection)
        if (position.number, position.tag) != (standing.head, standing.tag):
            raise EngineError("cannot write to the registry: it is brought up to date", hint="try again in a moment")
        return position

    def _apply_new(
        self, far: Far, connection: apsw.Connection, standing: _Standing | None, *, most_left: int = 0
    ) -> None:
        """Apply the entries that this copy lacks if it is not ahead of the log and the log still
        has them; `most_left` may remain.
        """
        position = self._position(connection)
        if standing is None or standing.here != position.tag or position.number < standing.base:
            return
        if standing.head - position.number <= most_left:
            return
        rows = far.execute(
            "SELECT number, lease, schema, body FROM entry WHERE log = %s AND number > %s ORDER BY number",
            (REGISTRY, position.number),
        ).fetchall()
        self._apply(connection, [LogRow(number, lease, schema, bytes(body)) for number, lease, schema, body in rows])

    def _apply(self, connection: apsw.Connection, entries: list[LogRow]) -> None:
        with storage_errors("apply the log of the registry"), transaction(connection):
            # Another process of this node may have applied some of them meanwhile.
            position = self._position(connection)
            number, tag = self._replay(connection, entries, position)
            if number != position.number:
                _write(connection, number, tag)
                self._has_news = True

    def _replay(self, connection: apsw.Connection, entries: list[LogRow], position: Shipped) -> tuple[int, bytes]:
        """Apply entries after a position, in the caller's transaction; return the number and the
        tag of the last one.
        """
        number, tag = position.number, position.tag
        replay = LogReplay(connection)
        for entry in entries:
            if entry.number <= number:
                continue
            self._require_known(entry.schema)
            if entry.number != number + 1:
                raise LogError("cannot use the log of the registry: an entry is missing in it")
            replay.apply(self._sealing.open(LogPosition(entry.number, entry.lease, entry.schema, tag), entry.body))
            number, tag = entry.number, tag_of(entry.body)
        return number, tag

    def _fetch(self, connection: apsw.Connection, *, is_back: bool = False) -> None:
        """Replace the local rows by those of the log, its snapshot and the entries after it, in one
        transaction.

        `is_back`: the log does not continue this copy. Then check if it continues from a state that
        it no longer contains; if not, carry over from here what takes access away, and write it to
        the log before the fetched rows are used.

        Raises EngineError: that could not be written to the log; the local copy is unchanged then.
        """
        copy = self._path.with_name(self._path.name + _FETCHED)
        for attempt in range(_TRIES):
            try:
                self._fetch_copy(copy)
                break
            except LogError:
                # Another node may have uploaded a new snapshot during the fetch.
                if attempt == _TRIES - 1:
                    raise
        try:
            with (
                closing(connect(copy, self._key, writer=True)) as fetched,
                storage_errors("take over the registry of the store"),
            ):
                with transaction(fetched):
                    self._upgrade(fetched)
                if is_back or (is_copy(connection) and not self._goes_on(fetched, connection)):
                    self._take_back(connection, fetched)
                else:
                    position = self._position(fetched)
                    with transaction(connection):
                        _take_over(fetched, connection)
                        _place(connection, position.number, position.tag)
            self.was_fetched = True
        finally:
            log_snapshot.remove(copy)

    def _take_back(self, connection: apsw.Connection, fetched: apsw.Connection) -> None:
        """Replace the local rows by those of a restored store, and append the carried-over removals of
        access as its next entry.
        """
        kept = self._keep("ahead")
        try:
            with closing(connect(kept, self._key, writer=False)) as own, self._engine.connection() as far:
                far.ask(_take_row())
                far.finish()
                standing, position = self._standing(far, fetched), self._position(fetched)
                if standing is None or (standing.head, standing.tag) != (position.number, position.tag):
                    raise EngineError("cannot follow the registry: its log was changed meanwhile", hint="try again")
                connection.execute("BEGIN IMMEDIATE")
                try:
                    _take_over(fetched, connection)
                    _place(connection, position.number, position.tag)
                    with closing(Recorder(connection, REGISTRY_DERIVED)) as recorder:
                        self._carry_over(connection, own)
                        patchset = recorder.patchset()
                    # In a log of an older version, the snapshot of this version contains the
                    # carried-over rows (`_take_step`).
                    if patchset and standing.schema == self._schema:
                        self._append(far, connection, position, patchset)
                    far.execute("COMMIT")
                except BaseException:
                    _undo(connection)
                    raise
                connection.execute("COMMIT")
        except BaseException:
            kept.unlink()
            raise
        log.error(
            "the store was put back: access that had ended stays so, what was here is kept as %s, and no new device is let in before: "
            "confided store --accept",
            kept.name,
        )

    def _fetch_copy(self, copy: Path) -> None:
        standing = self._look(None)
        if standing is None or standing.snapshot is None:
            raise LogError("cannot use the log of the registry: it has no beginning")
        log_snapshot.remove(copy)
        log_snapshot.fetch(
            self._log, self._sealing, standing.snapshot, copy, self._key, settle=lambda _connection: None
        )
        with (
            closing(connect(copy, self._key, writer=True)) as fetched,
            storage_errors("apply the log of the registry"),
            transaction(fetched),
        ):
            position = self._position(fetched)
            number, tag = self._replay(fetched, list(self._log.entries(position.number)), position)
            _write(fetched, number, tag)

    def _keep(self, why: Literal["ahead", "before"]) -> Path:
        """Copy the local database to a name that states why."""
        copy = log_snapshot.copy_beside(self._path, self._key)
        kept = log_snapshot.free(self._path, _KEPT[why])
        copy.rename(kept)
        return kept

    # Snapshots

    def _upload(self, *, is_first: bool) -> bool:
        """Upload a snapshot in one transaction of the engine, so that it is complete or absent;
        return True if it was uploaded.

        One with a newer schema than the log's must end with the log's last entry: no entry of an
        older version may follow it.
        """
        copy = log_snapshot.copy_beside(self._path, self._key)
        try:
            with closing(connect(copy, self._key, writer=False)) as connection:
                found = self._position(connection)
            number = secrets.randbits(62)
            about = {"id": REGISTRY, "snapshot": number, "schema": self._schema}
            values = {**about, "base": found.number, "tag": found.tag}
            with self._engine.connection(deadline_s=PARTS_S) as far, far.transaction():
                free = far.execute("SELECT pg_try_advisory_xact_lock(%s)", (_SNAPSHOT_LOCK,)).fetchone()
                if free is None or not free[0]:
                    if is_first:
                        raise EngineError("cannot bring the registry: another node does", hint="try again in a moment")
                    return False
                statement = (
                    """INSERT INTO log (id, head, base, tag, snapshot, schema)
                       VALUES (%(id)s, 0, 0, %(tag)s, %(snapshot)s, %(schema)s) ON CONFLICT DO NOTHING"""
                    if is_first
                    else """UPDATE log SET base = %(base)s, tag = %(tag)s, snapshot = %(snapshot)s, schema = greatest(schema, %(schema)s)
                            WHERE id = %(id)s AND base <= %(base)s AND head >= %(base)s
                                  AND (head = %(base)s OR schema >= %(schema)s)"""
                )
                if not far.execute(statement, values).rowcount:
                    if is_first:
                        raise EngineError(
                            "cannot bring the registry: the store has one by now", hint="try again in a moment"
                        )
                    return False

                def put(which: int, part: int, data: bytes) -> None:
                    far.execute("INSERT INTO part VALUES (%s, %s, %s, %s)", (REGISTRY, which, part, data))

                log_snapshot.upload(put, self._sealing, copy, found, number=number)
                far.execute("DELETE FROM part WHERE log = %(id)s AND snapshot <> %(snapshot)s", values)
                far.execute("DELETE FROM entry WHERE log = %(id)s AND number <= %(base)s", values)
            return True
        finally:
            copy.unlink(missing_ok=True)

    # Where both are

    def _look(self, connection: apsw.Connection | None) -> _Standing | None:
        with self._engine.connection() as far:
            found = self._standing(far, connection)
        self._engine.on_answer()
        return found

    def _standing(self, far: Far, connection: apsw.Connection | None) -> _Standing | None:
        """Return the status of the log, or None if it does not exist."""
        position = self._position(connection) if connection is not None and is_copy(connection) else Shipped()
        values = {"id": REGISTRY, "number": position.number, "last": TAG_BYTES - 1}
        row = far.execute(_STANDING, values).fetchone()
        if row is None:
            return None
        head, base, tag, parts, schema, last, here = row
        tag = GENESIS if tag is None else bytes(tag)
        newest = bytes(last) if last is not None else tag if head == base else b""
        there = bytes(here) if here is not None else tag if position.number == base else None
        return _Standing(position, head, base, newest, parts, schema, there)

    def _position(self, connection: apsw.Connection) -> Shipped:
        rows: list[Any] = (
            connection.execute("SELECT number, tag FROM shipped").fetchall() if is_copy(connection) else []
        )
        return Shipped(int(rows[0][0]), bytes(rows[0][1])) if rows else Shipped()

    def _require_known(self, schema: int) -> None:
        if schema > self._schema:
            raise OvertakenError(
                "cannot use the registry: a newer version of confide has written it",
                hint="upgrade confide on this machine",
            )


def _take_row() -> bytes:
    return _TAKE_ROW.format(wait_s=WAIT_S, stall_s=STALL_S, registry=REGISTRY).encode()


def _require_copy(connection: apsw.Connection) -> None:
    if not is_copy(connection):
        raise StorageError(
            "cannot use the registry: it is no copy of the store's yet", hint="start confided once, and say it again"
        )


@contextmanager
def _commit_lazily(connection: apsw.Connection) -> Iterator[None]:
    """Commit without waiting for the local disk within this block. The next commit after the block
    also writes these to the disk.
    """
    connection.execute("PRAGMA synchronous = NORMAL")
    try:
        yield
    finally:
        connection.execute("PRAGMA synchronous = FULL")


def _place(connection: apsw.Connection, number: int, tag: bytes) -> None:
    """Store the replication position, in the caller's transaction."""
    connection.execute(_POSITION)
    connection.execute("INSERT OR REPLACE INTO shipped (id, number, tag) VALUES (1, ?, ?)", (number, tag))


def _write(connection: apsw.Connection, number: int, tag: bytes) -> None:
    connection.execute("UPDATE shipped SET number = ?, tag = ?", (number, tag))


def _take_over(fetched: apsw.Connection, connection: apsw.Connection) -> None:
    """Replace the rows of all replicated tables by those of `fetched`, in the caller's transaction."""
    connection.execute("PRAGMA defer_foreign_keys = ON")
    tables = truths(connection, REGISTRY_DERIVED)
    for table in tables:
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 - of the schema
    for table in tables:
        names = [str(name) for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]
        said, marks = ", ".join(names), ", ".join("?" * len(names))
        rows = fetched.execute(f"SELECT {said} FROM {table}")  # noqa: S608 - of the schema
        connection.executemany(f"INSERT INTO {table} ({said}) VALUES ({marks})", rows)  # noqa: S608 - of the schema


def _undo(connection: apsw.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")
