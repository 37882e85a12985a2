"""The SQL of a log: its lease, its entries and its snapshot. All functions raise EngineError if
PostgreSQL is unavailable; none retries by itself.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from confide_cluster.daemon.log.log_sealing import GENESIS, TAG_BYTES
from confide_cluster.daemon.log.postgres_engine import PendingStatement, PostgresEngine, Prepared
from confide_daemon import figures
from confide_daemon.errors import FencedError

AT_ONCE: Final = 64
"""Entries fetched in one round trip."""
PART_BYTES: Final = 2**20
PARTS_S: Final = 60.0
"""Time limit for uploading one part of a snapshot, or for finishing one."""

_ALIVE: Final = "SELECT 1 FROM node WHERE node.id = log.holder AND seen_at > now() - make_interval(secs => %(lease_s)s)"
_TAKE: Final = f"""
    INSERT INTO log (id, lease, holder) VALUES (%(id)s, 1, %(node)s)
    ON CONFLICT (id) DO UPDATE SET lease = log.lease + 1, holder = %(node)s
        WHERE log.holder IS NULL OR log.holder = %(node)s OR NOT EXISTS ({_ALIVE})
    RETURNING lease, head, base, tag, snapshot, schema, custody
"""  # noqa: S608 - only constants of ours
_TAKE_ANEW: Final = f"""
    UPDATE log SET lease = lease + 1, holder = %(node)s
    WHERE id = %(id)s AND (holder IS NULL OR holder = %(node)s OR NOT EXISTS ({_ALIVE}))
    RETURNING lease, head, base, tag, snapshot, schema, custody
"""  # noqa: S608 - only constants of ours
_APPEND: Final = Prepared(
    "confide_append",
    ("text", "bigint", "bigint", "int", "bytea"),
    """WITH moved AS (
           UPDATE log SET head = $2, schema = $4 WHERE id = $1 AND head = $2 - 1 AND lease = $3 RETURNING id
       )
       INSERT INTO entry SELECT id, $2, $3, $4, $5 FROM moved""",
)


@dataclass(frozen=True, slots=True)
class LogStatus:
    """The status of a log when its lease was taken or it was read.

    Attributes:
        lease: the number of that lease; writes under another one are refused.
        head: the number of the last entry, 0 for none.
        base: the number of the last entry in the snapshot; 0 without a snapshot.
        tag: the tag of that entry; None without a snapshot.
        snapshot: the number of the snapshot, which its parts have; None without a snapshot.
        schema: the newest migration in the log.
        custody: who keeps the key of the database; None if that is not recorded.
    """

    lease: int
    head: int
    base: int
    tag: bytes | None
    snapshot: int | None
    schema: int
    custody: dict[str, object] | None


class LogRow(NamedTuple):
    """An entry as stored in the log."""

    number: int
    lease: int
    schema: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Appending:
    """An entry that was sent to PostgreSQL and is not confirmed yet."""

    _statement: PendingStatement
    _since: float

    def is_stored(self) -> bool:
        """Wait until the entry is on PostgreSQL's disk. Return False if it was not stored, because
        another lease was taken or another entry has this number.

        Raises EngineError if the outcome is unknown.
        """
        count = self._statement.answer()
        figures.STORE_APPEND.observe(time.perf_counter() - self._since)
        return count == 1

    def drop(self) -> None:
        """Stop waiting for the entry, which may or may not be stored."""
        self._statement.drop()


@dataclass(frozen=True, slots=True)
class Log:
    """The log of one space in PostgreSQL, for the node that has its lease or wants it."""

    engine: PostgresEngine
    id: str
    node: Callable[[], int]  # the current node number, which changes once a node was declared dead
    lease_s: float

    def take(self, *, anew: bool = False) -> LogStatus:
        """Take the lease. It may be taken again, which also ends a statement under the former lease
        that is still in progress.

        With `anew` the log must exist already, so that a deleted one is not created again. Raises
        FencedError if another live node holds the lease, or the log was deleted.
        """
        values = {"id": self.id, "node": self.node(), "lease_s": self.lease_s}
        _, rows = self.engine.run(_TAKE_ANEW if anew else _TAKE, values)
        if not rows:
            raise FencedError(
                "cannot use the space: another node of the store holds it",
                hint="connect to that one; it is free some seconds after that node has stopped",
            )
        return _standing(rows[0])

    def look(self) -> LogStatus | None:
        """Return the status of the log for a reader without the lease, or None if there is no log."""
        statement = "SELECT lease, head, base, tag, snapshot, schema, custody FROM log WHERE id = %(id)s"
        _, rows = self.engine.run(statement, {"id": self.id})
        return _standing(rows[0]) if rows else None

    def give_back(self, lease: int) -> None:
        """Release the lease, so that other nodes can take it at once."""
        statement = "UPDATE log SET holder = NULL WHERE id = %(id)s AND lease = %(lease)s AND holder = %(node)s"
        self.engine.run(statement, {"id": self.id, "lease": lease, "node": self.node()})

    def send(self, number: int, lease: int, schema: int, body: bytes) -> Appending:
        """Send an entry to PostgreSQL, and return without waiting for the answer."""
        values = [self.id.encode(), *(b"%d" % one for one in (number, lease, schema)), body]
        return Appending(self.engine.send(_APPEND, values), time.perf_counter())

    def append(self, number: int, lease: int, schema: int, body: bytes) -> bool:
        """Write an entry and wait for it; see `Appending.is_stored`."""
        return self.send(number, lease, schema, body).is_stored()

    def keep_custody(self, lease: int, custody: dict[str, object]) -> None:
        """Record who keeps the key of the database. Raises FencedError if the lease was lost."""
        statement = "UPDATE log SET custody = %(custody)s::jsonb WHERE id = %(id)s AND lease = %(lease)s"
        count, _ = self.engine.run(statement, {"id": self.id, "lease": lease, "custody": json.dumps(custody)})
        if not count:
            raise fenced_error()

    def has(self, number: int, tag: bytes, standing: LogStatus) -> bool:
        """Return True if the log has an entry with this number and this tag. Of the entries in its
        snapshot, only the last is known, so False is returned for the others.
        """
        if number > standing.head:
            return False
        if number == 0 and standing.base == 0:
            return tag == GENESIS
        if number == standing.base:
            return tag == standing.tag
        statement = (
            "SELECT right(encode(body, 'hex'), %(digits)s) FROM entry WHERE log = %(id)s AND number = %(number)s"
        )
        values = {"id": self.id, "number": number, "digits": 2 * TAG_BYTES}
        _, rows = self.engine.run(statement, values)
        return bool(rows) and rows[0][0] == tag.hex()

    def entries(self, after: int) -> Iterator[LogRow]:
        """Yield the entries with a higher number than `after`, in order."""
        statement = """SELECT number, lease, schema, body FROM entry
                       WHERE log = %(id)s AND number > %(after)s ORDER BY number LIMIT %(most)s"""
        while True:
            _, rows = self.engine.run(statement, {"id": self.id, "after": after, "most": AT_ONCE})
            yield from (LogRow(number, lease, schema, bytes(body)) for number, lease, schema, body in rows)
            if len(rows) < AT_ONCE:
                return
            after = rows[-1][0]

    def parts(self, snapshot: int) -> Iterator[bytes]:
        """Yield the manifest of a snapshot, then the file in pieces of `PART_BYTES`."""
        number = 0
        statement = "SELECT body FROM part WHERE log = %s AND snapshot = %s AND part = %s"
        while True:
            with self.engine.connection(deadline_s=PARTS_S) as connection:
                found = connection.execute(statement, (self.id, snapshot, number)).fetchone()
            if found is None:
                return
            yield bytes(found[0])
            number += 1

    def bring_part(self, snapshot: int, part: int, body: bytes) -> None:
        with self.engine.connection(deadline_s=PARTS_S) as connection:
            connection.execute("INSERT INTO part VALUES (%s, %s, %s, %s)", (self.id, snapshot, part, body))

    def settle(
        self, snapshot: int, lease: int, *, base: int, tag: bytes, schema: int, custody: dict[str, object] | None
    ) -> None:
        """Make a completely uploaded snapshot the snapshot of the log, in one transaction. Delete
        the entries that it contains, and the parts of all other snapshots.

        Args:
            base: the number of the last entry in the snapshot.
            tag: the tag of that entry.
            custody: the record of who keeps the key from now on; None leaves it unchanged.

        Raises FencedError if the lease was lost meanwhile.
        """
        values = {
            "id": self.id,
            "snapshot": snapshot,
            "lease": lease,
            "base": base,
            "tag": tag,
            "schema": schema,
            "custody": None if custody is None else json.dumps(custody),
        }
        with self.engine.connection(deadline_s=PARTS_S) as connection, connection.transaction():
            moved = connection.execute(
                """UPDATE log SET base = %(base)s, tag = %(tag)s, snapshot = %(snapshot)s, schema = %(schema)s,
                          head = greatest(head, %(base)s), custody = coalesce(%(custody)s::jsonb, custody)
                   WHERE id = %(id)s AND lease = %(lease)s AND base <= %(base)s""",
                values,
            )
            if not moved.rowcount:
                raise fenced_error()
            connection.execute("DELETE FROM entry WHERE log = %(id)s AND number <= %(base)s", values)
            connection.execute("DELETE FROM part WHERE log = %(id)s AND snapshot <> %(snapshot)s", values)

    def sweep(self, standing: LogStatus) -> None:
        """Delete the parts of interrupted snapshots, unless another node has taken the lease, since
        it may be uploading one.

        It is one statement, so that it sees the lease and the parts at the same moment.
        """
        statement = """DELETE FROM part WHERE log = %(id)s AND snapshot IS DISTINCT FROM %(kept)s
                       AND EXISTS (SELECT 1 FROM log WHERE log.id = %(id)s AND log.lease = %(lease)s)"""
        self.engine.run(statement, {"id": self.id, "kept": standing.snapshot, "lease": standing.lease})

    def forget(self, lease: int) -> None:
        """Delete the log with all its content. Raises FencedError if the lease was lost."""
        values = {"id": self.id, "lease": lease}
        with self.engine.connection(deadline_s=PARTS_S) as connection, connection.transaction():
            gone = connection.execute("DELETE FROM log WHERE id = %(id)s AND lease = %(lease)s", values)
            if not gone.rowcount:
                raise fenced_error()
            connection.execute("DELETE FROM entry WHERE log = %(id)s", values)
            connection.execute("DELETE FROM part WHERE log = %(id)s", values)


def _standing(row: tuple[Any, ...]) -> LogStatus:
    lease, head, base, tag, snapshot, schema, custody = row
    return LogStatus(lease, head, base, None if tag is None else bytes(tag), snapshot, schema, custody)


def fenced_error() -> FencedError:
    return FencedError("cannot write to the space: another node has taken it", hint="nothing was stored; send it again")
