"""Connections to PostgreSQL for all spaces of a daemon, with deadlines for statements. This module
knows no tables.

A statement is sent in one round trip. If it is not answered within its deadline, its outcome is
unknown: its connection is closed, and the error says so. Messages about connections contain no
host, user or value. Only this module loads the driver.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Final

import psycopg
from psycopg import generators, sql
from psycopg.conninfo import make_conninfo
from psycopg.pq import ExecStatus

from confide_daemon import __version__
from confide_daemon.errors import EngineError, StorageError

LOOK: Final = "look at url and password_file of [store] in daemon.toml"
RUNNING: Final = "is PostgreSQL running? confided doctor says more; what was to be stored can be sent again"
POOLED: Final = "set pool_mode = session in the pooler, or have url lead to PostgreSQL itself"

# The first match counts: a wrong certificate comes before the connection that it has ended.
_KNOWN: Final[tuple[tuple[str, str, str], ...]] = (
    (r"password authentication failed|no password supplied", "it refuses the password or the user", LOOK),
    (r'role "[^"]*" does not exist', "it has no such user", LOOK),
    (r'database "[^"]*" does not exist', "it has no such database", "create it, or correct url of [store]"),
    (r"no pg_hba.conf entry", "its pg_hba.conf lets no such connection in", "add a line for this host and user"),
    (r"translate host name|resolve host", "there is no host of that name", LOOK),
    (
        r"certificate|\bSSL\b|\bTLS\b",
        "TLS cannot be agreed on",
        "look at sslmode and sslrootcert in url of [store], and at the server's certificate",
    ),
    (
        r"session is read-only|server is in hot standby|not in hot standby",
        "no server of url takes writes",
        "is the primary running? url needs target_session_attrs=read-write and its host",
    ),
    (
        r"too many (clients|connections)|remaining connection slots",
        "it takes no more connections",
        "raise max_connections",
    ),
    (r"[Cc]onnection refused|No such file or directory", "nothing listens there", RUNNING),
    (r"timeout expired|timed out", "it does not answer in time", RUNNING),
)
# Errors of statements that were prepared on another server connection, and of transactions in a
# pooler's statement mode.
_OF_POOLERS: Final = frozenset({"08P01", "26000", "42P05"})


def explain(error: psycopg.Error) -> tuple[str, str]:
    """Return the message and the hint for users about a failed connection or statement."""
    if error.sqlstate is None:
        if isinstance(error, psycopg.ProgrammingError):
            return "its address cannot be read", LOOK
        text = str(error)
        for pattern, meaning, hint in _KNOWN:
            if re.search(pattern, text):
                return meaning, hint
        return "it does not answer in time, or closes the connection", RUNNING
    if isinstance(error, psycopg.errors.InvalidPassword):
        return "it refuses the password", LOOK
    said = f"PostgreSQL refuses with {error.sqlstate} ({type(error).__name__})"
    if error.sqlstate in _OF_POOLERS:
        return f"{said}, as behind a pooler in transaction mode", POOLED
    return said, LOOK if error.sqlstate.startswith("28") else RUNNING


def require_session(connection: psycopg.Connection[Any], other: Callable[[], psycopg.Connection[Any]]) -> None:
    """Refuse a connection through a pooler that assigns a server connection per transaction, since
    settings and prepared statements are lost there.

    The number of the server process reveals a pooler that cannot pass it on. For other poolers,
    `other` opens a second connection, which takes a server connection for a transaction. A setting
    of the first one survives only if each has a server connection of its own (PgBouncer, "SQL
    feature map"). Raises EngineError if there is such a pooler; psycopg.Error if the check itself
    fails.
    """
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    if row is not None and row[0] == connection.info.backend_pid:
        return
    token = secrets.token_hex(8)
    connection.execute("SELECT set_config('confide.session', %s, false)", (token,))
    with closing(other()) as second:
        second.execute("BEGIN")
        second.execute("SELECT 1")
        row = connection.execute("SELECT current_setting('confide.session', true)").fetchone()
        second.execute("ROLLBACK")
    if row is None or row[0] != token:
        raise EngineError(
            "cannot use the database of the store: a pooler gives each transaction another connection", hint=POOLED
        )


DEADLINE_S: Final = 5.0
"""Deadline in seconds of a statement, and of waiting for a free connection."""
CONNECT_S: Final = 3
"""Deadline in seconds of a connection attempt, per host; libpq counts whole seconds."""
REST_S: Final = 0.5
"""Pause after a failed connection attempt; without it every write would wait for its own attempt.
"""
LONG_REST_S: Final = 2.0
"""Pause after an attempt without any answer, for which others have waited."""
OLDEST_VERSION: Final = 150_000
_MIGRATING: Final = 0x636F6E66  # of the advisory lock: "conf"


DriverError: Final = psycopg.Error
"""The driver's errors within a connection; callers outside see EngineError."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A frequently used statement, which is prepared once per connection.

    Attributes:
        name: its name in the connection.
        types: the SQL types of its values.
        text: the statement, with `$1` for the first value.
    """

    name: str
    types: tuple[str, ...]
    text: str

    @property
    def formats(self) -> list[int]:
        """The format of each value in libpq's numbers: 1 (binary) for bytes, 0 (text) for others."""
        return [int(one == "bytea") for one in self.types]


class _InUseError(EngineError):
    """All connections of the pool are in use."""


class _Dated(psycopg.Connection[Any]):
    """A connection whose waits end at the time `until`, in seconds of the monotonic clock."""

    until = 0.0
    _statements: frozenset[str] = frozenset()

    def begin(self, statement: Prepared, values: Sequence[bytes]) -> None:
        """Send a statement without waiting, except to prepare it the first time."""
        if statement.name not in self._statements:
            types = ", ".join(statement.types)
            self.execute(f"PREPARE {statement.name} ({types}) AS {statement.text}".encode())
            self._statements |= {statement.name}
        self.pgconn.send_query_prepared(statement.name.encode(), values, statement.formats)
        self.pgconn.flush()  # what the socket does not take now, `finish` sends

    def ask(self, statements: bytes) -> None:
        """Send several statements without values, without waiting for their answers."""
        self.pgconn.send_query(statements)
        self.pgconn.flush()

    def is_answered(self, within_s: float) -> bool:
        """Return True if a response, or the end of the connection, arrives within `within_s`."""
        poller = select.poll()
        poller.register(self.fileno(), select.POLLIN)
        return bool(poller.poll(within_s * 1000))

    def finish(self) -> int:
        """Return the number of rows that the last statement changed or found."""
        results = self.wait(generators.execute(self.pgconn))
        for result in results:
            if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
                raise psycopg.errors.error_from_result(result)
        return results[-1].command_tuples or 0

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        left = max(0.0, self.until - time.monotonic())
        return super().wait(gen, interval, left if timeout is None else min(timeout, left))


Far = _Dated
"""A connection to the engine, as callers see it."""


class PendingStatement:
    """A statement that PostgreSQL executes while the sender does other work. It keeps its
    connection until it is answered.
    """

    def __init__(self, engine: PostgresEngine, connection: _Dated) -> None:
        self._engine = engine
        self._connection = connection
        self._is_over = False

    def answer(self) -> int:
        """Wait for the answer, and return the number of changed rows, which are then on
        PostgreSQL's disk. Raises EngineError if the outcome is unknown.
        """
        self._is_over = True
        with self._engine.using(self._connection):
            count = self._connection.finish()
        self._engine.on_answer()
        return count

    def drop(self) -> None:
        """Stop waiting for the statement, which may or may not be executed. Do nothing if it was
        answered, or is known to be lost.
        """
        if not self._is_over:
            self._is_over = True
            self._connection.close()
            self._engine.give_back(self._connection)


@dataclass
class PostgresEngine:
    """A daemon's pool of connections to PostgreSQL; thread-safe.

    Attributes:
        url: the address of the database in libpq's form, without a password.
        password: returns the password, and is called for each new connection, so that a new
            password applies at once; "" for none.
        most: the highest number of connections at once.
        on_answer: called for every round trip, for tests that count them.
    """

    url: str
    password: Callable[[], str] = lambda: ""
    most: int = 6
    deadline_s: float = DEADLINE_S
    on_answer: Callable[[], None] = lambda: None
    _idle: list[_Dated] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _rests_until: float = float("-inf")
    _is_closed: bool = False
    _has_sessions: bool = False  # a connection was seen to keep its settings

    def __post_init__(self) -> None:
        self._free = threading.BoundedSemaphore(self.most)

    @contextmanager
    def connection(self, *, deadline_s: float | None = None) -> Iterator[_Dated]:
        """Yield a connection in autocommit mode. The block must end within `deadline_s` seconds,
        None for the usual limit. The connection is closed after an error.

        Raises EngineError if no connection is available, or if PostgreSQL does not answer, in which
        case the outcome of the statements is unknown.
        """
        allowed = self.deadline_s if deadline_s is None else deadline_s
        connection = self._acquire(allowed, wait_s=allowed)
        with self.using(connection):
            yield connection

    @contextmanager
    def spare(self) -> Iterator[_Dated | None]:
        """Yield a connection for optional work, or None if all are in use. Raises EngineError if
        PostgreSQL is unavailable.
        """
        try:
            connection = self._acquire(self.deadline_s, wait_s=0.0)
        except _InUseError:
            yield None
            return
        with self.using(connection):
            yield connection

    @contextmanager
    def using(self, connection: _Dated) -> Iterator[None]:
        """Use a connection for the last time: it is closed after an error in the block, else
        returned to the pool. Raises EngineError instead of the driver's errors.
        """
        try:
            with self._explain_errors():
                yield
        except BaseException:
            connection.close()
            raise
        finally:
            self.give_back(connection)

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Convert the driver's errors to EngineError. Their texts name hosts and users, and may quote
        values: none is passed on.
        """
        try:
            yield
        except psycopg.Error as error:
            if error.sqlstate in _OF_POOLERS:
                self._has_sessions = False  # a pooler may have changed its mode since the check
            why, hint = explain(error)
            raise EngineError(f"cannot use the database of the store: {why}", hint=hint) from None

    def give_back(self, connection: _Dated) -> None:
        """Return a connection to the pool; a closed one only frees its place."""
        with self._lock:
            is_kept = not (self._is_closed or connection.closed)
            if is_kept:
                self._idle.append(connection)
        if not is_kept:
            connection.close()
        self._free.release()

    def _acquire(self, allowed_s: float, *, wait_s: float) -> _Dated:
        until = time.monotonic() + allowed_s
        if not self._free.acquire(timeout=wait_s):
            raise _InUseError("cannot reach the database of the store: all connections to it are in use")
        try:
            with self._explain_errors():
                connection = self._take_connection(until)
        except BaseException:
            self._free.release()
            raise
        connection.until = until
        return connection

    def run(self, statement: str, values: dict[str, object] | None = None) -> tuple[int, list[tuple[Any, ...]]]:
        """Run one statement and commit it; return the number of rows that it changed or found, and
        the rows. Raises EngineError if PostgreSQL does not answer.

        The server may have closed an idle connection. The statement is not sent again then, since
        it may have been executed.
        """
        with self.connection() as connection:
            answer = connection.execute(statement.encode(), values)
            rows = answer.fetchall() if answer.description is not None else []
            count = answer.rowcount
        self.on_answer()
        return count, rows

    def send(self, statement: Prepared, values: Sequence[bytes]) -> PendingStatement:
        """Send a statement whose answer is read later. Raises EngineError if it was not sent, or if
        that is unknown.
        """
        connection = self._acquire(self.deadline_s, wait_s=self.deadline_s)
        try:
            with self._explain_errors():
                connection.begin(statement, values)
        except BaseException:
            connection.close()
            self.give_back(connection)
            raise
        return PendingStatement(self, connection)

    def ready(self) -> None:
        """Create or migrate the tables for this version of Confide. Raises EngineError if
        PostgreSQL is unavailable; StorageError if a newer version has changed them.
        """
        steps = _migrations()
        with self.connection(deadline_s=60.0) as connection, connection.transaction():
            if connection.info.server_version < OLDEST_VERSION:
                raise StorageError("cannot use the database of the store: PostgreSQL 15 is the oldest that will do")
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATING,))
            connection.execute("CREATE TABLE IF NOT EXISTS migration (version int PRIMARY KEY, program text NOT NULL)")
            done = {int(row[0]) for row in connection.execute("SELECT version FROM migration").fetchall()}
            if max(done, default=0) > steps[-1][0]:
                raise StorageError(
                    f"cannot use the database of the store: a newer version of confide has changed it; this is {__version__}",
                    hint="upgrade confide on this machine",
                )
            for version, text in steps:
                if version not in done:
                    connection.execute(text.encode())
                    connection.execute("INSERT INTO migration VALUES (%s, %s)", (version, __version__))

    @contextmanager
    def moment(self) -> Iterator[PostgresEngine]:
        """Yield a view of the database, with the interface of this class, in which all statements
        read the same snapshot.

        PostgreSQL keeps all old rows meanwhile, so the block must be short. Raises EngineError if
        PostgreSQL is unavailable.
        """
        with self.connection() as far:
            far.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield _Moment(self.url, far=far, deadline_s=self.deadline_s)
            far.until = time.monotonic() + self.deadline_s
            far.execute("COMMIT")

    def close(self) -> None:
        """Close the idle connections now, and the others after their use."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take_connection(self, until: float) -> _Dated:
        while True:
            with self._lock:
                if not self._idle:
                    break
                connection = self._idle.pop()
            if _is_alive(connection):
                return connection
            connection.close()
        if (began := time.monotonic()) < self._rests_until:
            raise EngineError(
                "cannot reach the database of the store", hint="is PostgreSQL running? confided doctor says more"
            )
        try:
            return self._make_connection(until)
        except psycopg.Error:
            now = time.monotonic()
            self._rests_until = now + (REST_S if now - began < REST_S else LONG_REST_S)
            raise

    def _make_connection(self, until: float) -> _Dated:
        about: dict[str, Any] = {"application_name": "confided", "connect_timeout": CONNECT_S}
        if password := self.password():
            about["password"] = password
        address = make_conninfo(self.url, **about)
        connection = _Dated.connect(address, autocommit=True)
        try:
            connection.until = until
            if not self._has_sessions:
                require_session(connection, lambda: psycopg.connect(address, autocommit=True))
                self._has_sessions = True
            # An acknowledged write is on the engine's disk, whatever the server's setting; a server
            # that waits for a standby still does.
            connection.execute(
                "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
            )
            milliseconds = str(int(self.deadline_s * 1000))
            connection.execute(sql.SQL("SET lock_timeout = {}").format(sql.Literal(milliseconds)))
        except BaseException:
            connection.close()
            raise
        return connection


@dataclass
class _Moment(PostgresEngine):
    """An engine whose statements use one connection, in its transaction."""

    far: _Dated | None = None

    @contextmanager
    def connection(self, *, deadline_s: float | None = None) -> Iterator[_Dated]:
        assert self.far is not None
        self.far.until = time.monotonic() + (self.deadline_s if deadline_s is None else deadline_s)
        with self._explain_errors():
            yield self.far


def _is_alive(connection: _Dated) -> bool:
    """Return True unless an idle connection is known to be closed. One that the server has closed is
    readable.
    """
    if connection.closed:
        return False
    with contextlib.suppress(OSError, ValueError):
        poller = select.poll()
        poller.register(connection.fileno(), select.POLLIN)
        return not poller.poll(0)
    return False


def _migrations() -> Sequence[tuple[int, str]]:
    folder = resources.files("confide_cluster.daemon.log") / "sql"
    found = [
        (int(match[1]), entry.read_text(encoding="utf-8"))
        for entry in folder.iterdir()
        if (match := re.fullmatch(r"(\d{4})_\w+\.sql", entry.name))
    ]
    return sorted(found)
