"""Why a connection to the PostgreSQL of a store is not made or not usable, in words that pass on no host, user or value.

libpq gives no error code while it connects, only text that names hosts and users. Known fragments of that text choose a sentence; text in
another language gets the general one.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

import psycopg

from confide_daemon.errors import EngineError

LOOK: Final = "look at url and password_file of [store] in daemon.toml"
RUNNING: Final = "is PostgreSQL running? confided doctor says more; what was to be stored can be sent again"
POOLED: Final = "set pool_mode = session in the pooler, or have url lead to PostgreSQL itself"

# The first that matches counts: a wrong certificate is told before the connection that ended for it.
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
# Statements prepared on one server connection and run on another, and transactions in statement mode.
_OF_POOLERS: Final = frozenset({"08P01", "26000", "42P05"})


def explain(error: psycopg.Error) -> tuple[str, str]:
    """What a person is told of a failed connection or statement, and the way out."""
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
    """Refuse a pooler that gives each transaction another server connection: settings and prepared statements are lost there.

    A pooler is known by the number of the server process, which it cannot pass on. Then the other connection, opened here, takes a server
    connection for a transaction: a setting of the first is still there only if each has one of its own (PgBouncer, "SQL feature map").
    Raises EngineError; psycopg.Error where it cannot be asked.
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
