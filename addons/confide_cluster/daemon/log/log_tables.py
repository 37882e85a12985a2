"""The SQL of one log: its lease, its entries and its snapshot. All may raise EngineError; none is tried a second time by itself."""

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
"""For one part of a snapshot on its way, or the end of one."""

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
    """How a log stands, as whoever has just taken its lease is told.

    Attributes:
        lease: the number of that lease; whoever writes under another one is fenced.
        head: the number of the last entry, 0 for none.
        base: the last entry that is in the snapshot, and `tag` its tag; None: there is no snapshot.
        snapshot: which parts are it; None: there is none.
        schema: the newest migration of what is in it.
        custody: who keeps the key of the database; None: nobody has said.
    """

    lease: int
    head: int
    base: int
    tag: bytes | None
    snapshot: int | None
    schema: int
    custody: dict[str, object] | None


class LogRow(NamedTuple):
    """As it lies in the log."""

    number: int
    lease: int
    schema: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Appending:
    """An entry on its way."""

    _sent: PendingStatement
    _since: float

    def is_stored(self) -> bool:
        """Wait until it is on the engine's disk; False: another lease was taken, or another entry is there, and nothing is stored.

        Raises EngineError: nobody knows.
        """
        count = self._sent.answer()
        figures.STORE_APPEND.observe(time.perf_counter() - self._since)
        return count == 1

    def drop(self) -> None:
        """Nobody waits for it: what becomes of it, nobody knows."""
        self._sent.drop()


@dataclass(frozen=True, slots=True)
class Log:
    """The log of one space, for the node that has its lease or wants it."""

    engine: PostgresEngine
    id: str
    node: Callable[[], int]  # which this process is now: one that was taken for dead begins anew
    lease_s: float

    def take(self, *, anew: bool = False) -> LogStatus:
        """Take the lease, or take it anew, which also ends a statement of the former one that is still on its way.

        `anew`: there was a log before; one that was removed is not made again. Raises FencedError: another node holds it, and is alive.
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
        """How it stands, for whoever has no lease and only reads; None: there is none."""
        statement = "SELECT lease, head, base, tag, snapshot, schema, custody FROM log WHERE id = %(id)s"
        _, rows = self.engine.run(statement, {"id": self.id})
        return _standing(rows[0]) if rows else None

    def give_back(self, lease: int) -> None:
        """Have others take it at once."""
        statement = "UPDATE log SET holder = NULL WHERE id = %(id)s AND lease = %(lease)s AND holder = %(node)s"
        self.engine.run(statement, {"id": self.id, "lease": lease, "node": self.node()})

    def send(self, number: int, lease: int, schema: int, body: bytes) -> Appending:
        """Send an entry on its way to the engine's disk."""
        values = [self.id.encode(), *(b"%d" % one for one in (number, lease, schema)), body]
        return Appending(self.engine.send(_APPEND, values), time.perf_counter())

    def append(self, number: int, lease: int, schema: int, body: bytes) -> bool:
        """The same, waited for; see `Appending.is_stored`."""
        return self.send(number, lease, schema, body).is_stored()

    def keep_custody(self, lease: int, custody: dict[str, object]) -> None:
        """Note who keeps the key of the database. Raises FencedError."""
        statement = "UPDATE log SET custody = %(custody)s::jsonb WHERE id = %(id)s AND lease = %(lease)s"
        count, _ = self.engine.run(statement, {"id": self.id, "lease": lease, "custody": json.dumps(custody)})
        if not count:
            raise fenced()

    def has(self, number: int, tag: bytes, standing: LogStatus) -> bool:
        """Whether the entry with that number has that tag; one that is in the snapshot and before its last is not known any more."""
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
        """Those behind a number, in order."""
        statement = """SELECT number, lease, schema, body FROM entry
                       WHERE log = %(id)s AND number > %(after)s ORDER BY number LIMIT %(most)s"""
        while True:
            _, rows = self.engine.run(statement, {"id": self.id, "after": after, "most": AT_ONCE})
            yield from (LogRow(number, lease, schema, bytes(body)) for number, lease, schema, body in rows)
            if len(rows) < AT_ONCE:
                return
            after = rows[-1][0]

    def parts(self, snapshot: int) -> Iterator[bytes]:
        """The manifest of a snapshot, then the file in pieces of `PART_BYTES`."""
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
        """Make a snapshot whose parts are all there the log's, in one transaction; entries that are in it, and other parts, go.

        `custody`: who keeps the key from now on; None: as before. Raises FencedError: the lease was lost meanwhile.
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
                raise fenced()
            connection.execute("DELETE FROM entry WHERE log = %(id)s AND number <= %(base)s", values)
            connection.execute("DELETE FROM part WHERE log = %(id)s AND snapshot <> %(snapshot)s", values)

    def sweep(self, standing: LogStatus) -> None:
        """Remove the parts of snapshots that were interrupted; none where another lease was taken since, and its holder may bring some.

        One statement, so that it sees the lease and the parts as they were at one moment.
        """
        statement = """DELETE FROM part WHERE log = %(id)s AND snapshot IS DISTINCT FROM %(kept)s
                       AND EXISTS (SELECT 1 FROM log WHERE log.id = %(id)s AND log.lease = %(lease)s)"""
        self.engine.run(statement, {"id": self.id, "kept": standing.snapshot, "lease": standing.lease})

    def forget(self, lease: int) -> None:
        """Remove the log with all that is in it. Raises FencedError."""
        values = {"id": self.id, "lease": lease}
        with self.engine.connection(deadline_s=PARTS_S) as connection, connection.transaction():
            gone = connection.execute("DELETE FROM log WHERE id = %(id)s AND lease = %(lease)s", values)
            if not gone.rowcount:
                raise fenced()
            connection.execute("DELETE FROM entry WHERE log = %(id)s", values)
            connection.execute("DELETE FROM part WHERE log = %(id)s", values)


def _standing(row: tuple[Any, ...]) -> LogStatus:
    lease, head, base, tag, snapshot, schema, custody = row
    return LogStatus(lease, head, base, None if tag is None else bytes(tag), snapshot, schema, custody)


def fenced() -> FencedError:
    return FencedError("cannot write to the space: another node has taken it", hint="nothing was stored; send it again")
