"""The audit log: a table in the registry's file that records connections, refusals, and changes to
devices and their rights.

A change by an operator is recorded in the same transaction. Events of the running daemon go through
`AuditLog`, whose single writer works in batches beside the event loop, so no handshake waits for
it. Each kind of event has a limit of its own, and refusals are counted rather than listed. So a
flood of one kind cannot push out the others. One device that keeps inviting, rotating its key or
reconnecting can fill at most a quarter of a kind.

The log contains no stored text, no network address, and no text chosen by an unauthenticated peer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import apsw

from confide_crypto.errors import ConfideError
from confide_crypto.keys.identity import fingerprint_words
from confide_daemon.errors import EngineError

log = logging.getLogger(__name__)

Event = Literal[
    "connected",
    "ended",
    "refused",
    "invited",
    "uninvited",
    "joined",
    "added",
    "approved",
    "renamed",
    "granted",
    "devices",
    "rotating",
    "rotated",
    "revoked",
    "trusted",
    "removed",
]
# Rows kept of each kind. Sessions are the most frequent; changes are looked up a year later.
KEPT = {"change": 5000, "session": 4000, "refusal": 1000}
SHARE = 4
"""A caller, with all callers by its invites, may have one part in this many of a full kind; beyond
that, its own oldest row is deleted.
"""
_ALL = b""
"""Stands for all rows of a kind, including the operator's, in place of an actor (`audit_counts`).
"""
_KINDS = {"connected": "session", "ended": "session", "refused": "refusal"}

MAX_WAITING = 4096
PAUSE_S = 0.25
"""Seconds between two batches; each is one transaction."""
SHARED_PAUSE_S = 1.0
"""The same with a store, where each batch is an entry that all nodes apply."""
FLUSH_DEADLINE_S = 5.0
REFUSAL_SPAN_S = 60.0
KEYS_PER_SPAN = 20
"""Refused keys per minute that get a row of their own; all others share one."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    # at, last_at: seconds since the epoch; they differ if the row counts several refusals
    at: float
    last_at: float
    event: str
    caller: str | None  # the name it had then
    fingerprint: str | None  # the six words of its key
    session: str | None  # its id, as it stands in the daemon's log
    detail: str | None  # what exactly, in our own words
    count: int  # how many such events the row stands for


def record(
    database: apsw.Connection,
    at: float,
    event: Event,
    *,
    alias: str | None = None,
    public_key: bytes | None = None,
    session: str | None = None,
    detail: str | None = None,
    by: bytes | None = None,
) -> int:
    """Write a row within the caller's transaction and return its number. Delete one old row if the
    log is then over its limit.

    `by`: the public key of the device that caused the event; None for the operator.
    """
    kind = _KINDS.get(event, "change")
    words = fingerprint_words(public_key) if public_key else None
    actor = _first_inviter(database, by) if by else None
    database.execute(
        "INSERT INTO audit (kind, at, last_at, event, caller, fingerprint, session, detail, actor) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (kind, at, at, event, alias, words, session, detail, actor),
    )
    number = database.last_insert_rowid()
    _add_rows(database, kind, _ALL, 1)
    if actor is not None:
        _add_rows(database, kind, actor, 1)
    _drop_one_over(database, kind)
    return number


def hand_over(database: apsw.Connection, key: bytes, successor: bytes) -> None:
    """Reassign the rows that a device caused to its new key, within the caller's transaction."""
    for kind in KEPT:
        database.execute("UPDATE audit SET actor = ? WHERE kind = ? AND actor = ?", (successor, kind, key))
        handed_over = database.changes()
        database.execute("DELETE FROM audit_counts WHERE kind = ? AND actor = ?", (kind, key))
        _add_rows(database, kind, successor, handed_over)


def _add_rows(database: apsw.Connection, kind: str, actor: bytes, rows: int) -> None:
    database.execute(
        "INSERT INTO audit_counts VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET rows = rows + excluded.rows",
        (kind, actor, rows),
    )
    if rows <= 0:  # who has none any more is not kept
        database.execute("DELETE FROM audit_counts WHERE kind = ? AND actor = ? AND rows <= 0", (kind, actor))


def _drop_one_over(database: apsw.Connection, kind: str) -> None:
    rows: Any = database.execute("SELECT rows FROM audit_counts WHERE kind = ? AND actor = ?", (kind, _ALL)).get
    if rows <= KEPT[kind]:
        return
    # Fewer than `SHARE` callers can have more than one part in `SHARE`.
    greedy = database.execute(
        """SELECT (SELECT min(id) FROM audit WHERE kind = ?1 AND audit.actor = audit_counts.actor) AS oldest, actor FROM audit_counts
           WHERE kind = ?1 AND rows > ?2 AND actor <> ?3 ORDER BY oldest LIMIT 1""",
        (kind, KEPT[kind] // SHARE, _ALL),
    ).fetchone()
    oldest = (
        greedy or database.execute("SELECT id, actor FROM audit WHERE kind = ? ORDER BY id LIMIT 1", (kind,)).fetchone()
    )
    assert oldest is not None
    number, actor = oldest
    database.execute("DELETE FROM audit WHERE id = ?", (number,))
    _add_rows(database, kind, _ALL, -1)
    if actor is not None:
        _add_rows(database, kind, actor, -1)


def _first_inviter(database: apsw.Connection, key: bytes) -> bytes:
    """Follow the invites back from a caller to the one that the operator enrolled; return that
    one's current key.
    """
    above = "CASE WHEN revoked_at IS NOT NULL AND successor IS NOT NULL THEN successor ELSE invited_by END"
    found: Any = database.execute(
        f"""WITH RECURSIVE way(key) AS (SELECT ? UNION SELECT {above} FROM callers JOIN way ON public_key = key WHERE {above} IS NOT NULL)
           SELECT key FROM way LEFT JOIN callers ON public_key = key WHERE {above} IS NULL""",  # noqa: S608 - a constant
        (key,),
    ).get
    return found if isinstance(found, bytes) else key


def select_entries(
    database: apsw.Connection, since: float, *, alias: str | None, public_key: bytes | None
) -> list[AuditEntry]:
    """Return the rows since a time (seconds since 1970), oldest first. `alias` or `public_key`
    selects the rows of one device; None selects all.
    """
    words = fingerprint_words(public_key) if public_key else None
    rows = database.execute(
        """SELECT at, last_at, event, caller, fingerprint, session, detail, count FROM audit
           WHERE last_at >= :since AND (:alias IS NULL OR caller = :alias OR fingerprint = :words) ORDER BY id""",
        {"since": since, "alias": alias, "words": words},
    )
    return [AuditEntry(*row) for row in rows]


@dataclass(frozen=True, slots=True)
class _Seen:
    at: float
    event: Event
    alias: str | None
    public_key: bytes
    session: str | None
    detail: str | None


class AuditLog:
    """A queue of audit events of the running daemon. `run` writes them to the database; the other
    methods only add to the queue and return at once.
    """

    def __init__(
        self,
        transaction: Callable[[], AbstractContextManager[apsw.Connection]],
        *,
        pause_s: float = PAUSE_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`transaction`: that of the registry; `pause_s`: seconds between two batches."""
        self._transaction = transaction
        self._pause_s = pause_s
        self._clock = clock
        self._waiting: deque[_Seen] = deque()
        self._dropped_lines = 0
        self._arrived = asyncio.Event()
        self._under_way: asyncio.Task[None] | None = None
        # The row of each key that counts its refusals in the current minute.
        self._counting: dict[tuple[bytes | None, str | None], int] = {}
        self._counting_until = 0.0

    def log_connection(self, alias: str, public_key: bytes, session: str) -> None:
        self._add("connected", alias, public_key, session, None)

    def log_end(self, alias: str, public_key: bytes, session: str, word: str) -> None:
        """Log that a session has ended; `word` is the reason: done, lost, revoked, and so on."""
        self._add("ended", alias, public_key, session, word)

    def log_refusal(self, public_key: bytes, reason: str) -> None:
        """Log that a peer was refused although it has proven that it holds this key."""
        self._add("refused", None, public_key, None, reason)

    async def run(self) -> None:
        """Write queued events to the database until cancelled. Then call `flush` for the rest."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            await self._write()
            await asyncio.sleep(self._pause_s)

    async def flush(self) -> None:
        """Write the events that are still queued. Gives up after a few seconds."""
        try:
            async with asyncio.timeout(FLUSH_DEADLINE_S):
                if self._under_way is not None:
                    await asyncio.shield(self._under_way)
                await self._write()
        except TimeoutError:
            log.error("the audit log could not be written in time")
        if self._waiting:
            log.error("%d rows of the audit log are lost: the store could not be asked", len(self._waiting))

    def _add(self, event: Event, alias: str | None, public_key: bytes, session: str | None, detail: str | None) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self._dropped_lines += 1
            return
        self._waiting.append(_Seen(self._clock(), event, alias, public_key, session, detail))
        self._arrived.set()

    async def _write(self) -> None:
        batch = [self._waiting.popleft() for _ in range(len(self._waiting))]
        dropped, self._dropped_lines = self._dropped_lines, 0
        if dropped:
            log.error("%d rows of the audit log were dropped: they came faster than the disk takes them", dropped)
        if batch:
            # A cancelled batch goes to `flush`: if its thread has not begun, its events would
            # otherwise be lost.
            self._under_way = asyncio.create_task(self._store_all(batch))
            await asyncio.shield(self._under_way)

    async def _store_all(self, batch: list[_Seen]) -> None:
        try:
            await asyncio.to_thread(self._store, batch)
        except EngineError:
            # The store is unavailable: keep the events as far as the queue allows. If the store has
            # recorded them after all, they appear twice.
            self._counting.clear()
            room = MAX_WAITING - len(self._waiting)
            self._dropped_lines += max(0, len(batch) - room)
            self._waiting.extendleft(reversed(batch[-room:] if room > 0 else []))
            self._arrived.set()
        except Exception as error:
            # The daemon continues: the operator sees the disk failure in the log and in every
            # failing store.
            why = error if isinstance(error, ConfideError) else type(error).__name__
            log.error("%d rows of the audit log are lost: %s", len(batch), why)
            self._counting.clear()

    def _store(self, batch: list[_Seen]) -> None:
        with self._transaction() as database:
            for seen in batch:
                if seen.event == "refused":
                    self._count(database, seen)
                else:
                    values: dict[str, Any] = {"alias": seen.alias, "session": seen.session, "detail": seen.detail}
                    record(database, seen.at, seen.event, public_key=seen.public_key, by=seen.public_key, **values)
                    database.execute(
                        "UPDATE callers SET last_seen_at = ? WHERE public_key = ?", (seen.at, seen.public_key)
                    )

    def _count(self, database: apsw.Connection, seen: _Seen) -> None:
        """Count a refusal: in the row of its key for this minute, or in the shared row once there
        are too many keys.
        """
        if seen.at >= self._counting_until:
            self._counting.clear()
            self._counting_until = seen.at + REFUSAL_SPAN_S
        key: bytes | None = seen.public_key
        if (key, seen.detail) not in self._counting and len(self._counting) >= KEYS_PER_SPAN:
            key = None
        number = self._counting.get((key, seen.detail))
        if number is not None:
            database.execute("UPDATE audit SET count = count + 1, last_at = ? WHERE id = ?", (seen.at, number))
            return
        row: Any = database.execute("SELECT alias FROM callers WHERE public_key = ?", (key,)).fetchone()
        detail = seen.detail if key else f"{seen.detail}; many keys"
        self._counting[key, seen.detail] = record(
            database, seen.at, "refused", alias=row and row[0], public_key=key, detail=detail
        )
