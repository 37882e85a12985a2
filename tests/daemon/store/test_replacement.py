"""A database changes its key while it is read and written, and whatever ends that in the middle leaves one whole database with one key."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.deadline import DEADLINE_S

from confide_daemon.embedding import LoadedModel
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.errors import StorageError, WrongKeyError
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared
from confide_daemon.store import threads
from confide_daemon.store.database import connect
from confide_daemon.store.rows import Breach
from confide_daemon.store.upkeep import replacement, salvage
from confide_daemon.store.upkeep.integrity import Integrity
from confide_daemon.store.upkeep.replacement import COPY, Rekeying

KILLS = Path(__file__).parents[2] / "support" / "kills" / "rekey_kills.py"
# 1 tries every point; the suite, which runs often, some of them.
STRIDE = os.environ.get("CONFIDE_REKEY_STRIDE", "9")
OLD, NEW = bytes(range(32)), bytes(range(32, 64))


async def open_space(path: Path, key: bytes) -> Space:
    handle = LoadedModel.ready(HashedEmbedder(64))
    return await Space.open(path, key, SpaceShared(IndexSettings(), handle), space_id="s")


async def fill(space: Space, count: int) -> None:
    for number in range(count):
        text = f"# Pool {number}\n\n{os.urandom(20_000).hex()}\n\nthe pool has {number} lanes\n"
        await space.documents.put("p", f"{number}.md", text, base=0, author="a")


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a small database has many."""
    monkeypatch.setattr(replacement, "STEP_PAGES", 16)
    monkeypatch.setattr(threads, "LAST_PAGES", 16)


async def test_everybody_reads_and_writes_on(tmp_path: Path) -> None:
    """Searches and writes come between the slices of the copy, and all that was written in the meantime is there afterwards."""
    path = tmp_path / "s.db"
    space = await open_space(path, OLD)
    await fill(space, 4)
    await space.documents.put("p", "log.md", "the log of the pool\n", base=0, author="a")
    await space.wait_indexed(timeout_s=DEADLINE_S)
    done = asyncio.Event()
    read, written, during = 0, 0, [0, 0]

    async def reads() -> None:
        nonlocal read
        while not done.is_set():
            assert (await space.index.searcher.search(SearchQuery("lanes of the pool"))).hits
            read += 1
            await asyncio.sleep(0.005)

    async def writes() -> None:
        nonlocal written
        while not done.is_set():
            assert (
                await space.documents.put("p", f"w{written}.md", f"written {written}\n", base=0, author="a")
            ).changed
            # What is on a page that was copied already changes as well.
            await space.documents.replace("p", "log.md", f"log {written} of the pool\n", heading=None, author="a")
            written += 1
            await asyncio.sleep(0.005)

    def follow(copied: int, total: int) -> None:
        assert 0 <= copied <= total
        if 0 < copied < total:
            during[:] = read, written

    others = [asyncio.create_task(reads()), asyncio.create_task(writes())]
    for number, key in enumerate((NEW, OLD, NEW)):
        before = read, written
        await space.rekey(key, follow=follow)
        assert during[0] > before[0] or during[1] > before[1], number
    done.set()
    await asyncio.gather(*others)
    assert len(await space.documents.list_documents(None, sources=None)) == 5 + written
    assert (await space.documents.read("p", "log.md")).text == f"log {written - 1} of the pool\n"
    assert not await space.upkeep.check()
    await space.close()
    assert [file.name for file in tmp_path.iterdir()] == ["s.db"]
    with pytest.raises(WrongKeyError):
        await open_space(path, OLD)
    space = await open_space(path, NEW)
    assert (await space.index.searcher.search(SearchQuery("written lanes"))).hits
    await space.close()


async def test_the_copy_is_private_and_unreadable_from_its_first_byte(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    copy = path.with_name(path.name + COPY)
    old = os.umask(0)
    seen: list[bytes] = []

    def follow(_copied: int, _total: int) -> None:
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        seen.append(copy.read_bytes())

    try:
        space = await open_space(path, OLD)
        await fill(space, 4)  # more than SQLite keeps in memory of the copy
        await space.rekey(NEW, follow=follow)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert any(seen)
    for content in (*seen, path.read_bytes()):
        assert not [needle for needle in (b"SQLite format 3", b"lanes", OLD, NEW) if needle in content]
    await space.close()


async def test_a_change_that_is_given_up_leaves_the_old_key(tmp_path: Path) -> None:
    """By whoever asked for it, or since another process looks at the file just when its turn comes."""
    path = tmp_path / "s.db"
    space = await open_space(path, OLD)
    await fill(space, 3)
    changing = asyncio.create_task(
        space.rekey(NEW, follow=lambda _copied, _total: changing.get_loop().call_soon_threadsafe(changing.cancel))
    )
    with pytest.raises(asyncio.CancelledError):
        await changing
    doctor = connect(path, OLD, writer=False)
    doctor.execute("BEGIN; SELECT count(*) FROM document").fetchall()
    await space.documents.put("p", "more.md", "more\n", base=0, author="a")
    with pytest.raises(StorageError, match="another process"):
        await space.rekey(NEW)
    doctor.close()
    assert (await space.documents.read("p", "more.md")).text == "more\n"
    await space.close()
    assert [file.name for file in tmp_path.iterdir()] == ["s.db"]
    space = await open_space(path, OLD)
    await space.rekey(NEW)
    await space.close()
    await (await open_space(path, NEW)).close()


async def test_what_a_killed_change_has_left_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    left = [path.with_name(path.name + end) for end in (COPY, salvage.NEW, f"{salvage.NEW}-wal")]
    for one in left:
        one.write_bytes(b"half of it")
    space = await open_space(path, OLD)
    assert not [one for one in left if one.exists()]
    await space.close()


@pytest.mark.e2e
@pytest.mark.parametrize("keeper", ["server", "caller"])
def test_a_kill_at_any_point_loses_nothing(tmp_path: Path, keeper: str) -> None:
    """Of the database and of the file that says who keeps its key, both of which change."""
    done = subprocess.run(
        [sys.executable, str(KILLS), str(tmp_path), keeper, STRIDE],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len([one for one in told if one["killed"]]) >= 20 // int(STRIDE)
    assert not told[-1]["killed"]
    assert any(one["acknowledged"] for one in told)
    assert not [one for one in told if one["wrong"]]


async def test_a_check_that_is_under_way_begins_again_with_the_new_file(tmp_path: Path) -> None:
    """The connection that it reads with is closed for the swap; it was taken for damage."""
    path = tmp_path / "s.db"
    space = await open_space(path, OLD)
    await fill(space, 4)
    await space.wait_indexed(timeout_s=DEADLINE_S)
    begun, may_go_on, slices = threading.Event(), threading.Event(), 0
    examine = Integrity.examine

    def slowly(integrity: Integrity) -> Iterator[list[Breach]]:
        nonlocal slices
        for found in examine(integrity):
            slices += 1
            yield found
            begun.set()
            may_go_on.wait(DEADLINE_S)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Integrity, "examine", slowly)
        checking = asyncio.create_task(space.upkeep.check())
        await asyncio.to_thread(begun.wait, 60)
        changing = asyncio.create_task(space.rekey(NEW))
        await asyncio.sleep(0.05)
        may_go_on.set()
        await changing
        assert not await checking
    assert slices > 1
    await space.close()


async def test_what_is_written_just_before_the_swap_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's backup is done with its last page, after which no write reaches it; of a small file one slice has all pages."""
    monkeypatch.setattr(replacement, "STEP_PAGES", 4096)
    path = tmp_path / "s.db"
    space = await open_space(path, OLD)
    await fill(space, 1)
    loop, written = asyncio.get_running_loop(), 0

    async def write() -> None:
        nonlocal written
        await space.documents.put("p", f"late{written}.md", f"late {written}\n", base=0, author="a")
        written += 1

    sync = Rekeying.sync

    def late(copying: Rekeying) -> None:
        if threading.current_thread() is not threading.main_thread() and not threading.current_thread().name.startswith(
            "confide-write"
        ):
            # Beside the writer: the copy is nearly complete, and brought to the disk.
            asyncio.run_coroutine_threadsafe(write(), loop).result(DEADLINE_S)
        sync(copying)

    monkeypatch.setattr(Rekeying, "sync", late)
    await space.rekey(NEW)
    await space.rekey(OLD)
    assert written == 2
    assert len(await space.documents.list_documents(None, sources=None)) == 1 + written
    assert not await space.upkeep.check()
    await space.close()
