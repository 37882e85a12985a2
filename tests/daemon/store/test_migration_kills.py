"""kill -9 at each statement of an upgrade, of data that every release wrote: nothing is lost, and it goes on when it is opened again."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from tests.support.daemon.registries import KEY
from tests.support.programs.released import Release, has_archives, releases

from confide_daemon import __version__
from confide_daemon.access.history.upgrades import pending
from confide_daemon.access.registry import Registry, open_state
from confide_daemon.datadir.credentials import MasterKey
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.errors import StorageError
from confide_daemon.store.database import connect
from confide_daemon.store.migrations import migrations
from confide_daemon.store.space_store import Store

pytestmark = pytest.mark.skipif(not has_archives(), reason="the archives of releases are in the repository alone")
MOST_STATEMENTS = 4000
STRIDE = int(os.environ.get("CONFIDE_MIGRATION_STRIDE", "4"))
"""Every so many statements in the suite; `make chaos` takes each."""


def killed_at(statement: int, work: Callable[[], object]) -> bool:
    """Whether a process of its own that does `work` was killed as it came to that statement, and not done with it before."""
    pid = os.fork()
    if pid == 0:
        try:
            left = statement

            def count(_event: object) -> None:
                nonlocal left
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

            apsw.connection_hooks.append(lambda made: made.trace_v2(apsw.SQLITE_TRACE_STMT, count))
            work()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.waitstatus_to_exitcode(status) == 0
    return False


def all_kills(
    original: Path, place: Path, work: Callable[[Path], object], check: Callable[[Path], None], stride: int = STRIDE
) -> int:
    """Kills at every so manyth statement, on a copy of the file each time; how many there were. The last attempt is let through."""
    for statement in range(0, MOST_STATEMENTS, stride):
        copy = place / f"{statement}.db"
        shutil.copyfile(original, copy)
        was_killed = killed_at(statement, lambda: work(copy))  # noqa: B023 - called at once
        check(copy)
        for file in place.glob(f"{statement}.db*"):
            file.unlink()
        if not was_killed:
            return statement
    raise AssertionError("it has no end")


@pytest.mark.parametrize("release", releases(), ids=lambda release: release.version)
def test_a_space_survives_a_kill_at_each_statement(tmp_path: Path, release: Release) -> None:
    """Every text is there, nothing is wrong with it, and it is of this version once it is opened again."""
    folder = DataFolder(release.state(tmp_path))
    spaces = Registry.open(folder.registry, MasterKey.load(folder.master).registry_key())
    original = folder.space(spaces.spaces()["ann"])
    key = MasterKey.load(folder.master).space_key(original.stem)
    spaces.close()

    def texts(path: Path, *, writer: bool) -> dict[str, tuple[int, str]]:
        with closing(Store.open(path, key, writer=writer, now=2.0)) as store:
            if writer:
                assert store.schema_version() == migrations()[-1][0]
                assert not [breach for found in store.integrity.examine() for breach in found]
                newest = store.one("SELECT program FROM migration ORDER BY version DESC LIMIT 1")
                assert newest == __version__
            with store.reading():
                return {row.path: (row.revision, row.hash) for row in store.documents.list_documents(None)}

    known = texts(original, writer=False)
    assert {path: known[path][0] for path in release.facts["spaces"]["ann"]["documents"]} == {
        path: one["revision"] for path, one in release.facts["spaces"]["ann"]["documents"].items()
    }

    def check(path: Path) -> None:
        assert texts(path, writer=True) == known

    statements = all_kills(original, tmp_path, lambda path: Store.open(path, key, writer=True, now=1.0).close(), check)
    assert statements > len(migrations())


def test_a_new_space_is_made_at_once_or_not_at_all(tmp_path: Path) -> None:
    """What is left of one that was killed meanwhile is made whole by the next that opens it."""
    empty = tmp_path / "empty.db"
    empty.touch()

    def check(path: Path) -> None:
        with closing(Store.open(path, KEY, writer=True, now=2.0)) as store:
            assert store.schema_version() == migrations()[-1][0]
            assert not [breach for found in store.integrity.examine() for breach in found]

    all_kills(
        empty, tmp_path, lambda path: Store.open(path, KEY, writer=True, now=1.0).close(), check, stride=25 * STRIDE
    )


@pytest.mark.parametrize("release", releases(), ids=lambda release: release.version)
def test_a_registry_survives_a_kill_at_each_statement(tmp_path: Path, release: Release) -> None:
    """Its callers are there, and it is of the older version or of this one, never between."""
    folder = DataFolder(release.state(tmp_path))
    key = MasterKey.load(folder.master).registry_key()
    names = [one["name"] for one in release.facts["callers"]]

    def check(path: Path) -> None:
        with closing(connect(path, key, writer=False)) as looking:
            found = pending(looking)
            assert found is None or found.program == release.version
        with closing(Registry.open(path, key)) as registry:
            assert [caller.alias for caller in registry.callers()] == names
            with registry.reading() as database:
                assert pending(database) is None
                rows = database.execute("SELECT program, snapshot FROM migration").fetchall()
                assert rows == [(__version__, None)]

    statements = all_kills(folder.registry, tmp_path, lambda path: Registry.open(path, key).close(), check)
    assert statements > 3


def test_what_a_newer_version_wrote_is_refused_with_both_versions(tmp_path: Path) -> None:
    """Of the registry and of a space; also where the registry is the same and its spaces have gone on."""
    folder = DataFolder(releases()[0].state(tmp_path))
    master = MasterKey.load(folder.master)
    state = open_state(folder, may_upgrade=True)
    (path, *_) = [folder.space(one) for name, one in state.registry.spaces().items() if name == "ann"]
    state.close()
    key = master.space_key(path.stem)
    said = f"it was written by confided 9.4.0; this is {__version__}"
    Store.open(path, key, writer=True, now=1.0).close()
    with closing(connect(path, key, writer=True)) as database:
        database.execute("INSERT INTO migration (version, applied_at, program) VALUES (9999, 0, '9.4.0')")
    with pytest.raises(StorageError, match=said) as caught:
        Store.open(path, key, writer=True, now=1.0)
    assert "restore the snapshot from before it" in str(caught.value.hint)
    with closing(connect(folder.registry, master.registry_key(), writer=True)) as database:
        database.execute("INSERT INTO migration SELECT 0, '9.4.0', registry, 9999, NULL FROM migration")
    with pytest.raises(StorageError, match=said) as caught:
        open_state(folder)
    assert "restore the snapshot from before it" in str(caught.value.hint)
