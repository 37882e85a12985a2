"""What a person is told where PostgreSQL cannot be reached, or not as it has to be. No host, user or text of the server is passed on."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from tests.support.daemon.postgres import SUPERUSER, Postgres, server
from tests.support.deadline import DEADLINE_S
from tests.support.network.ports import free_port

from confide_cluster.daemon.log import postgres_engine
from confide_cluster.daemon.log.configured import durability, standing_of
from confide_cluster.daemon.log.postgres_engine import PostgresEngine
from confide_daemon.errors import EngineError

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with server() as found:
        yield found


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("postgresql://canary@127.0.0.1:{port}/postgres", "it has no such user"),
        ("postgresql://confide@127.0.0.1:{port}/canary", "it has no such database"),
        ("postgresql://confide@canary.invalid:{port}/postgres", "there is no host of that name"),
        ("postgresql://confide@127.0.0.1:{free}/postgres", "nothing listens there"),
        ("postgresql://confide@127.0.0.1:{port}/postgres?sslmode=require", "TLS cannot be agreed on"),
        (
            "postgresql://confide@127.0.0.1:{port}/postgres?sslmode=verify-full&sslrootcert=/canary.pem",
            "TLS cannot be agreed on",
        ),
        ("postgresql://confide@127.0.0.1:{port}/postgres?no_such_option=canary", "its address cannot be read"),
    ],
)
def test_each_cause_has_a_sentence_of_its_own(postgres: Postgres, url: str, why: str) -> None:
    address = url.format(port=postgres.port, free=free_port())
    with closing(PostgresEngine(address)) as engine, pytest.raises(EngineError, match=why) as refused:
        engine.ready()
    assert "canary" not in f"{refused.value} {refused.value.hint}"
    assert refused.value.hint


@pytest.mark.parametrize("setting", ["local", "on"])
def test_how_safe_a_write_is_is_asked_of_our_own_connection(postgres: Postgres, setting: str) -> None:
    """Not of the server's configuration alone: a database may have a setting of its own, and no standby may be connected."""
    url = postgres.database()
    with closing(PostgresEngine(url)) as engine:
        engine.ready()
    postgres.sql(f"ALTER DATABASE {url.rpartition('/')[2]} SET synchronous_commit = '{setting}'")
    postgres.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
    try:
        wait_for_standby_names(postgres, "*")
        with closing(PostgresEngine(url)) as engine:
            standby, _, _, _, commit, connected = standing_of(engine)["settings"]
    finally:
        postgres.sql("ALTER SYSTEM RESET synchronous_standby_names")
        wait_for_standby_names(postgres, "")
    assert (standby, commit, connected) == (True, setting, 0)
    said = durability(standby=standby, is_forced=True, commit=commit, connected=connected)
    assert ("no write waits for a standby" in said) is (setting == "local")
    assert ("no standby is connected now" in said) is (setting == "on")


def wait_for_standby_names(postgres: Postgres, names: str) -> None:
    """Have the server read its configuration, and wait until it has."""
    postgres.sql("SELECT pg_reload_conf()")
    end = time.monotonic() + DEADLINE_S
    while postgres.sql("SHOW synchronous_standby_names") != [(names,)]:
        assert time.monotonic() < end, "the server has not read its configuration"


@contextmanager
def pooler(folder: Path, postgres: Postgres, mode: str) -> Iterator[int]:
    """PgBouncer before the server; the port it listens on."""
    assert PGBOUNCER is not None
    port = free_port()
    settings = (
        "[databases]",
        f"* = host=127.0.0.1 port={postgres.port} user={SUPERUSER}",
        "[pgbouncer]",
        "listen_addr = 127.0.0.1",
        f"listen_port = {port}",
        "auth_type = any",
        f"pool_mode = {mode}",
        "unix_socket_dir =",
        "ignore_startup_parameters = extra_float_digits,options",
    )
    (folder / "pgbouncer.ini").write_text("\n".join(settings) + "\n")
    user = ["-u", "nobody"] if os.geteuid() == 0 else []
    process = subprocess.Popen([PGBOUNCER, "-q", *user, str(folder / "pgbouncer.ini")], stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + DEADLINE_S
        while True:
            try:
                psycopg.connect(postgres.url(port=port), connect_timeout=5).close()
                break
            except psycopg.OperationalError:
                assert time.monotonic() < end, "the pooler does not serve"
                time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()


@pytest.mark.skipif(PGBOUNCER is None, reason="PgBouncer is not installed")
@pytest.mark.parametrize("mode", ["transaction", "statement", "session"])
def test_a_pooler_that_shares_connections_is_refused_by_name(postgres: Postgres, tmp_path: Path, mode: str) -> None:
    """Half of what is sent works there, and the settings that make a commit safe are lost without a word."""
    database = postgres.database().rpartition("/")[2]
    with pooler(tmp_path, postgres, mode) as port, closing(PostgresEngine(postgres.url(database, port))) as engine:
        if mode == "session":
            engine.ready()
            engine.ready()
            return
        with pytest.raises(EngineError) as refused:
            engine.ready()
    assert "pool_mode = session" in (refused.value.hint or "")


def test_a_pooler_that_changes_its_mode_is_looked_at_again(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once is enough for a server that keeps sessions, and not behind the errors that tell of another connection."""
    looks: list[object] = []
    monkeypatch.setattr(postgres_engine, "require_session", lambda *_: looks.append(None))
    with closing(PostgresEngine(postgres.database())) as engine:
        for failing, expected in (("SELECT 1/0", 1), ("EXECUTE one_that_is_elsewhere", 1), ("SELECT 1/0", 2)):
            with pytest.raises(EngineError):
                engine.run(failing)
            assert len(looks) == expected
        engine.run("SELECT 1")
    assert len(looks) == 2
