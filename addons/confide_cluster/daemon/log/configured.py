"""The PostgreSQL that `[store]` in daemon.toml names, and its status. Loads the driver only when a
connection is needed.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confide_cluster.settings import StoreConfig
from confide_crypto.errors import KeyFileError
from confide_crypto.keys.private_files import read_private_file
from confide_daemon.datadir.credentials import credential
from confide_daemon.errors import EngineError, StorageError
from confide_memory.errors import with_extra

if TYPE_CHECKING:
    from confide_cluster.daemon.log.postgres_engine import PostgresEngine

PASSWORD: Final = "store-password"  # noqa: S105 - the name of a credential
_MOST_PASSWORD: Final = 1024


def open_engine(config: StoreConfig, *, most: int | None = None) -> PostgresEngine:
    """Return a pool of connections to the PostgreSQL of `[store]`; none is opened yet.

    `most` limits the connections at once; None for the configured number. Raises StorageError if
    the optional driver is not installed.
    """
    try:
        from confide_cluster.daemon.log.postgres_engine import PostgresEngine
    except ImportError:
        raise StorageError(
            "cannot use the store: the driver of PostgreSQL is not installed",
            hint=with_extra("daemon", "postgres"),
        ) from None
    return PostgresEngine(config.url, lambda: _password(config), most or config.connections)


def _password(config: StoreConfig) -> str:
    try:
        if config.password_file:
            return read_private_file(Path(config.password_file).expanduser()).decode("utf-8").strip()
        handed = credential(PASSWORD)
        if handed is None:
            return ""
        with handed.open("rb") as file:
            return file.read(_MOST_PASSWORD).decode("utf-8").strip()
    except KeyFileError as error:
        raise EngineError(f"cannot use the password of the store: {error}", hint=error.hint) from None
    except (OSError, UnicodeDecodeError):
        raise EngineError("cannot use the password of the store: it cannot be read", hint="is it text?") from None


def standing_of(engine: PostgresEngine) -> dict[str, Any]:
    """Return the status of PostgreSQL for users: its nodes, its logs and how safe its commits are.
    Raises EngineError if it does not answer.
    """
    _, nodes = engine.run(
        "SELECT id, version, extract(epoch FROM now() - seen_at)::float, address FROM node ORDER BY id"
    )
    _, logs = engine.run(
        # Sum up in one pass: a query for each log took two seconds of a core for 100,000
        # (bench.scale).
        """SELECT id, lease, holder, head, base, coalesce(bytes, 0)::bigint
           FROM log LEFT JOIN (SELECT log, sum(length(body)) AS bytes FROM entry GROUP BY log) tail ON tail.log = log.id
           WHERE id <> 'registry' ORDER BY id"""
    )
    _, settings = engine.run(
        # As in this connection, since a user, a database or a server may have settings of its own.
        # Not every user may see whose walsender it is.
        """SELECT current_setting('synchronous_standby_names') <> '', current_setting('fsync') = 'on',
                  current_setting('server_version'), pg_is_in_recovery(),
                  current_setting('synchronous_commit'), (SELECT count(*) FROM pg_stat_replication)"""
    )
    _, registry = engine.run("SELECT head, head - base FROM log WHERE id = 'registry'")
    asked_at = time.time()
    _, clock = engine.run("SELECT extract(epoch FROM clock_timestamp())::float")
    return {
        "nodes": nodes,
        "logs": logs,
        "settings": settings[0],
        "registry": registry[0] if registry else None,
        "ahead_s": clock[0][0] - (asked_at + time.time()) / 2,
    }


def durability(*, standby: bool, is_forced: bool, commit: str, connected: int) -> str:
    """Describe how safe a confirmed write is.

    Args:
        standby: True if `synchronous_standby_names` is set.
        is_forced: True if `fsync` is on.
        commit: the value of `synchronous_commit` for the daemon's own connection.
        connected: the number of standbys connected now.
    """
    if not is_forced:
        return "it does not force writes to its disk (fsync is off): a power cut loses what was acknowledged"
    if not standby:
        return "one server has each write on its disk; if that disk is lost, so is what no standby had yet"
    if commit == "local":
        return (
            "one server has each write on its disk: synchronous_commit is local for this user or database, so no write "
            "waits for a standby"
        )
    where = "on one server's disk and in the memory of another" if commit == "remote_write" else "on two servers"
    if not connected:
        return f"each write is {where} before it is acknowledged; no standby is connected now, so writes wait for one"
    return f"each write is {where} before it is acknowledged"
