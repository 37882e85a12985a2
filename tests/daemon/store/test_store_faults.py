"""A store that cannot be opened, read or written says why in words a person understands, and loses nothing."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest
from tests.support.daemon.disks import mounted, remount
from tests.support.deadline import DEADLINE_S

from confide_daemon.embedding import LoadedModel
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.errors import StorageError
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared
from confide_daemon.store.database import connect, storage_errors
from confide_daemon.store.rows import RevisionRow
from confide_daemon.store.space_store import Store
from confide_daemon.store.upkeep import salvage

KEY = os.urandom(32)
CANARY = "canary7e1fplatypus"


async def open_space(path: Path, key: bytes = KEY) -> Space:
    handle = LoadedModel.ready(HashedEmbedder(64))
    return await Space.open(path, key, SpaceShared(IndexSettings(), handle), space_id="s")


async def make(path: Path) -> None:
    space = await open_space(path)
    await space.documents.put("p", "a.md", f"the {CANARY} lives here\n", base=0, author="alice")
    await space.wait_indexed(timeout_s=DEADLINE_S)
    await space.close()


async def test_a_wrong_key_is_named_and_changes_nothing(tmp_path: Path) -> None:
    """And the right one opens the space afterwards."""
    path = tmp_path / "s.db"
    await make(path)
    before = path.read_bytes()
    with pytest.raises(StorageError, match="the key is not the one") as caught:
        await open_space(path, os.urandom(32))
    assert caught.value.hint
    assert path.read_bytes() == before
    space = await open_space(path)
    assert CANARY in (await space.documents.read("p", "a.md")).text
    await space.close()


async def touch_everything(path: Path) -> None:
    """Opens, writes, searches, and reads every page."""
    space = await open_space(path)
    try:
        await space.documents.put("p", "b.md", "text\n", base=0, author="a")
        await space.index.searcher.search(SearchQuery(CANARY))
        connection = connect(path, KEY, writer=False)
        with storage_errors("check the database"):
            # What of SQLite's own book-keeping is damaged it says in words.
            if connection.execute("PRAGMA integrity_check").get != "ok":
                raise apsw.CorruptError
        connection.close()
    finally:
        await space.close()


@pytest.mark.parametrize("where", [0, 1, 2])
async def test_a_damaged_file_is_refused_with_a_hint(tmp_path: Path, where: int) -> None:
    """Pages are authenticated: not one wrong byte is taken for data, wherever it is."""
    path = tmp_path / "s.db"
    await make(path)
    data = bytearray(path.read_bytes())
    position = [40, 4096 + 100, len(data) - 2000][where]
    data[position] ^= 1
    path.write_bytes(data)
    with pytest.raises(StorageError) as caught:
        await touch_everything(path)
    assert "damaged" in str(caught.value) or "not a database" in str(caught.value)
    assert caught.value.hint
    assert CANARY not in str(caught.value)


async def test_something_else_in_its_place_is_not_overwritten(tmp_path: Path) -> None:
    """A text file named like the database."""
    path = tmp_path / "s.db"
    path.write_text("notes of somebody\n" * 500)
    with pytest.raises(StorageError):
        await open_space(path)
    assert path.read_text() == "notes of somebody\n" * 500


async def test_a_database_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    """An old program must not write what it does not understand."""
    path = tmp_path / "s.db"
    await make(path)
    connection = connect(path, KEY, writer=True)
    connection.execute("INSERT INTO migration (version, applied_at) VALUES (9999, 0)")
    connection.close()
    with pytest.raises(StorageError, match="newer version") as caught:
        await open_space(path)
    assert "upgrade" in str(caught.value.hint)


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """The data folder was not set up, or is not mounted."""
    with pytest.raises(StorageError, match="cannot create the database") as caught:
        await open_space(tmp_path / "no" / "s.db")
    assert caught.value.hint


async def test_a_full_disk_refuses_the_write_and_keeps_the_rest(small_disk: Path) -> None:
    """What was acknowledged can be read and searched, on the full disk and after it has room again."""
    ballast = small_disk / "ballast"
    path = small_disk / "s.db"
    await make(path)
    space = await open_space(path)
    ballast.write_bytes(b"x" * 1024 * 1024)
    slow_reader = connect(path, KEY, writer=False)  # as long as it looks at an old state, the log cannot begin anew
    slow_reader.execute("BEGIN; SELECT count(*) FROM document").fetchall()
    acknowledged: list[tuple[str, str]] = []
    with pytest.raises(StorageError) as caught:  # noqa: PT012 - which of the writes fails is not known before
        for number in range(400):
            text = f"# Note {number}\n\n" + os.urandom(20_000).hex() + f"\n\nnote{number} about the pool\n"
            await space.documents.put("p", f"{number}.md", text, base=0, author="a")
            acknowledged.append((str(number), text))
    assert "disk" in str(caught.value)
    assert caught.value.hint
    assert acknowledged
    for number, text in acknowledged:
        assert (await space.documents.read("p", f"{number}.md")).text == text
    assert (await space.index.searcher.search(SearchQuery(CANARY))).hits
    slow_reader.close()
    ballast.unlink()
    # Neither the vectors that are owed nor folding in the log take the room that was made: it is for what people write.
    await space.wait_indexed(timeout_s=0.5)
    for more in range(5):
        text = f"there is room again {more}\n"
        result = await space.documents.put("p", f"more{more}.md", text, base=0, author="a")
        assert result.revision == 1
        acknowledged.append((f"more{more}", text))
    await space.close()
    space = await open_space(path)
    acknowledged.append(("last", "and behind a restart\n"))
    assert (await space.documents.put("p", "last.md", acknowledged[-1][1], base=0, author="a")).revision == 1
    for number, text in acknowledged:
        assert (await space.documents.read("p", f"{number}.md")).text == text
    await asyncio.to_thread(remount, small_disk, "size=64m")
    await space.documents.put("p", "last.md", "there is room for everything\n", base=1, author="a")
    acknowledged[-1] = ("last", "there is room for everything\n")
    assert await space.wait_indexed(timeout_s=DEADLINE_S)
    await space.close()
    assert [file.name for file in small_disk.iterdir()] == ["s.db"]
    space = await open_space(path)
    for number, text in acknowledged:
        assert (await space.documents.read("p", f"{number}.md")).text == text
    await space.close()


async def test_a_limit_of_the_database_itself_reads_as_a_full_disk(tmp_path: Path) -> None:
    """SQLITE_FULL without a full disk, so that this is tested where nothing can be mounted; the transaction is undone as a whole."""
    path = tmp_path / "s.db"
    await make(path)
    store = Store.open(path, KEY, writer=True, now=0.0)
    pages = store.one("PRAGMA page_count")
    store.one(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StorageError, match="the disk is full"), store.writing():
        store.documents.save("p", "b.md", os.urandom(200_000).hex(), author="a", now=0.0)
    assert store.documents.find("p", "b.md") is None
    assert store.documents.find("p", "a.md") is not None
    with store.writing():
        store.documents.save("p", "a.md", "small\n", author="a", now=0.0)
    store.close()


@pytest.fixture
def disk_to_freeze(tmp_path: Path) -> Iterator[tuple[Path, Callable[[], None]]]:
    folder = tmp_path / "ro"
    folder.mkdir()
    if not mounted(folder, "size=6m"):
        pytest.skip("mounting a read-only file system needs root")

    def freeze() -> None:
        remount(folder, "ro")

    yield folder, freeze
    subprocess.run(["umount", "-l", str(folder)], check=True)


async def test_a_folder_that_cannot_be_written_is_named(disk_to_freeze: tuple[Path, Callable[[], None]]) -> None:
    """A read-only mount: root is held by it too."""
    folder, freeze = disk_to_freeze
    await make(folder / "s.db")
    freeze()
    with pytest.raises(StorageError, match=r"not writable|cannot be opened") as caught:
        await open_space(folder / "s.db")
    assert caught.value.hint
    with pytest.raises(StorageError, match="cannot create") as caught:
        await open_space(folder / "new.db")
    assert caught.value.hint


async def test_no_plaintext_reaches_the_disk(tmp_path: Path) -> None:
    """A planted word is in no file of the folder: database, log, shared memory, temporary files; nor after a delete."""
    path = tmp_path / "s.db"
    space = await open_space(path)
    vector = HashedEmbedder(64).embed_query(f"the {CANARY} lives here")
    for number in range(30):
        text = f"# {CANARY}\n\nthe {CANARY} lives here {number}\n\n" * 20
        await space.documents.put(f"{CANARY}-project", f"memory/{CANARY}{number}.md", text, base=0, author=CANARY)
    await space.index.searcher.search(SearchQuery(f"{CANARY} lives"))
    await space.wait_indexed(timeout_s=DEADLINE_S)
    await space.documents.remove(f"{CANARY}-project", f"memory/{CANARY}3.md", base=1, author=CANARY)

    def leaks() -> list[str]:
        needles = [CANARY.encode(), vector.tobytes(), b"SQLite format 3", KEY, KEY.hex().encode()]
        files = [file for file in tmp_path.rglob("*") if file.is_file()]
        assert len(files) >= 1
        return [file.name for file in files for needle in needles if needle in file.read_bytes()]

    assert {file.name for file in tmp_path.iterdir()} == {"s.db", "s.db-wal", "s.db-shm"}
    assert leaks() == []
    await space.close()
    assert leaks() == []


async def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    """Whatever the umask, also of the log beside the database."""
    old = os.umask(0)
    try:
        space = await open_space(tmp_path / "s.db")
        await space.documents.put("p", "a.md", "text\n", base=0, author="a")
    finally:
        os.umask(old)
    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file.name
    await space.close()


async def test_a_half_done_upgrade_starts_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration and the row that records it commit together: one that fails leaves the version before."""
    from confide_daemon.store import migrations as module

    path = tmp_path / "s.db"
    await make(path)
    steps = module.migrations()
    broken = [*steps, (steps[-1][0] + 1, "CREATE TABLE extra (x); INSERT INTO nowhere VALUES (1)")]
    monkeypatch.setattr(module, "migrations", lambda: broken)
    with pytest.raises(StorageError, match="upgrade"):
        await open_space(path)
    monkeypatch.setattr(module, "migrations", lambda: steps)
    space = await open_space(path)
    assert CANARY in (await space.documents.read("p", "a.md")).text
    await space.close()


def test_a_rebuild_on_a_disk_that_has_just_the_room_loses_nothing(small_disk: Path) -> None:
    """With a log the copy would take twice the room, and what could not be folded out of it stay behind with it, untold."""
    path = small_disk / "s.db"
    store = Store.open(path, KEY, writer=True, now=0.0)
    texts = {f"{number}.md": os.urandom(50_000).hex() for number in range(50)}
    with store.writing():
        for name, text in texts.items():
            store.documents.save("p", name, text, author="a", now=0.0)
    store.close()
    room = os.statvfs(small_disk)
    ballast = int(room.f_bavail * room.f_frsize - 1.3 * path.stat().st_size)
    (small_disk / "ballast").write_bytes(b"x" * ballast)
    assert salvage.salvage(path, KEY) == 0
    store = Store.open(path, KEY, writer=False, now=0.0)
    assert {name: _newest(store, name).text for name in texts} == texts
    store.close()


def _newest(store: Store, name: str) -> RevisionRow:
    document = store.documents.find("p", name)
    assert document is not None
    revision = store.documents.revision(document.id, 1)
    assert revision is not None
    return revision


async def test_a_disk_that_fills_up_while_the_key_is_changed_leaves_the_old_one(small_disk: Path) -> None:
    """Before it begins, or in the middle; with room again it is done."""
    path = small_disk / "s.db"
    space = await open_space(path)
    for number in range(14):
        await space.documents.put("p", f"{number}.md", os.urandom(20_000).hex() + "\n", base=0, author="a")
    await space.wait_indexed(timeout_s=DEADLINE_S)
    await space.upkeep.give_back()
    ballast = small_disk / "ballast"

    def fill(_copied: int, _total: int) -> None:
        room = os.statvfs(small_disk)
        with ballast.open("ab") as file:
            file.write(b"x" * (room.f_bavail * room.f_frsize))

    with pytest.raises(StorageError, match="disk is full") as caught:
        await space.rekey(os.urandom(32), follow=fill)
    assert caught.value.hint
    with pytest.raises(StorageError, match="no room"):
        await space.rekey(os.urandom(32))
    ballast.unlink()
    assert (await space.documents.put("p", "last.md", "there is room again\n", base=0, author="a")).revision == 1
    key = os.urandom(32)
    await space.rekey(key)
    await space.close()
    space = await open_space(path, key)
    assert len(await space.documents.list_documents(None, sources=None)) == 15
    await space.close()


async def test_what_is_cut_off_in_the_middle_of_a_look_is_closed_like_all_else(tmp_path: Path) -> None:
    """A statement that was not read to its end refuses all others of its connection, once it is interrupted; the space lost its last
    close to that: its other connections stayed open, and its log stayed beside the file."""
    path = tmp_path / "s.db"
    await make(path)
    space = await open_space(path)
    await space.documents.put("p", "b.md", "text\n", base=0, author="a")

    def look(store: Store) -> object:
        rows = store.connection.execute("SELECT * FROM (VALUES (1), (2), (3))")
        next(rows)
        store.interrupt()
        return rows

    unread = await space.threads.examine(look)
    await space.close()
    assert unread is not None
    assert not path.with_name("s.db-wal").exists()
