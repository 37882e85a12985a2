"""What whoever holds the engine changes, what the engine loses, and a copy that is damaged: refused, told of, or fetched anew."""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from tests.daemon.spaces.test_custodian import until
from tests.support.daemon.logged import Node, Store

from confide_cluster.daemon import relocation
from confide_cluster.daemon.log import log_snapshot
from confide_cluster.daemon.log.postgres_engine import PostgresEngine
from confide_cluster.errors import LogError
from confide_daemon.access.registry import open_state
from confide_daemon.errors import StorageError

SECOND = "memory/second.md"


async def written(store: Store, *, with_snapshot: bool = False) -> Path:
    """A space with some entries, behind a snapshot or without one; nobody has it open. Where its file is."""
    async with store.node() as node:
        await node.put("memory/first.md", "the first note\n")
        if with_snapshot:
            await snapshot_of(node)
        await node.put(SECOND, "the second note\n")
        await node.put("memory/third.md", "the third note\n")
    return node.path


async def snapshot_of(node: Node) -> None:
    outbox = (await node.space()).outbox
    assert outbox is not None
    await asyncio.to_thread(outbox.take_snapshot)


CHANGED = {
    "a byte": "UPDATE entry SET body = set_byte(body, 40, get_byte(body, 40) # 1) WHERE number = 3",
    "left out": "DELETE FROM entry WHERE number = 3",
    "renumbered": "UPDATE entry SET number = CASE number WHEN 2 THEN 3 ELSE 2 END WHERE number IN (2, 3)",
    "another lease": "UPDATE entry SET lease = lease + 1 WHERE number = 3",
    "another schema": "UPDATE entry SET schema = schema - 1 WHERE number = 3",
    "the last ones left out": "DELETE FROM entry WHERE number > 3",
    "a byte of the snapshot": "UPDATE part SET body = set_byte(body, 5000, get_byte(body, 5000) # 1) WHERE part = 1",
    "the manifest": "UPDATE part SET body = set_byte(body, 40, get_byte(body, 40) # 1) WHERE part = 0",
    "a part left out": "DELETE FROM part WHERE part = 1",
}


@pytest.mark.parametrize("what", CHANGED)
async def test_what_is_changed_in_the_engine_is_refused(store: Store, what: str) -> None:
    """The space is not opened, and its health says so; nothing that was changed is believed."""
    is_of_snapshot = "part" in CHANGED[what].split()[:3]
    path = await written(store, with_snapshot=is_of_snapshot)
    log_snapshot.remove(path)
    if not is_of_snapshot and "renumbered" in what:
        store.sql("ALTER TABLE entry DROP CONSTRAINT entry_pkey")
    store.sql(CHANGED[what])
    async with store.node() as node:
        with pytest.raises(LogError):
            await node.space()
        assert "storage" in node.spaces.health_problems()


async def test_parts_of_an_older_snapshot_are_not_taken_for_the_newer_ones(store: Store) -> None:
    path = await written(store, with_snapshot=True)
    store.sql("CREATE TABLE kept AS SELECT * FROM part WHERE part = 1")
    async with store.node() as node:
        await node.put("memory/fourth.md", "another\n")
        await snapshot_of(node)
    store.sql("UPDATE part SET body = (SELECT body FROM kept) WHERE part = 1")
    log_snapshot.remove(path)
    async with store.node() as node:
        with pytest.raises(LogError, match="parts"):
            await node.space()


async def test_a_space_that_the_store_was_put_back_for_is_not_opened_before_a_person_accepts_it(store: Store) -> None:
    """Nothing that was acknowledged goes without a word; then it goes on from there, and what this machine had is in a file of its own."""
    async with store.node() as node:
        await node.put("memory/first.md", "the first note\n")
        ((head,),) = store.sql("SELECT head FROM log")  # beside writes, others are brought too
        await node.put(SECOND, "the second note\n")
    path = node.path
    entries = store.sql("SELECT log, number, lease, schema, body FROM entry WHERE number > %s", head)
    ((newest,),) = store.sql("SELECT head FROM log")
    store.sql("DELETE FROM entry WHERE number > %s", head)
    store.sql("UPDATE log SET head = %s", head)
    async with store.node() as node:
        for _ in range(2):
            with pytest.raises(StorageError, match="was put back") as caught:
                await node.space()
            assert "store --accept" in str(caught.value.hint)
        assert "storage" in node.spaces.health_problems()
    for entry in entries:  # the right database is there again
        store.sql("INSERT INTO entry VALUES (%s, %s, %s, %s, %s)", *entry)
    store.sql("UPDATE log SET head = %s", newest)
    async with store.node() as node:
        assert sorted(await node.texts()) == ["memory/first.md", SECOND]
    assert log_snapshot.accept(path.parent) == []
    ((head,),) = store.sql("SELECT max(number) - 1 FROM entry")
    store.sql("DELETE FROM entry WHERE number > %s", head)
    store.sql("UPDATE log SET head = %s", head)
    async with store.node() as node:
        with pytest.raises(StorageError, match="was put back"):
            await node.space()
        assert log_snapshot.accept(path.parent) == [path.stem]
        await node.texts()
        assert "storage" in node.spaces.health_problems()
        await node.put("memory/later.md", "goes on\n")
    kept = path.with_name(path.name + log_snapshot.AHEAD)
    assert kept.exists()
    assert kept.stat().st_mode & 0o077 == 0
    async with store.node() as node:
        assert "memory/later.md" in await node.texts()
        assert "storage" in node.spaces.health_problems()
        assert log_snapshot.accept(path.parent) == []


async def test_a_copy_that_was_written_to_without_its_log_is_no_copy_any_more(store: Store) -> None:
    """As one whose daemon ran without [store] for a while: what is in it is kept beside."""
    path = await written(store)
    async with store.node(url="") as node:
        await node.put("memory/alone.md", "only here\n")
    async with store.node() as node:
        assert "memory/alone.md" not in await node.texts()
        assert SECOND in await node.texts()
        assert "storage" in node.spaces.health_problems()
    assert path.with_name(path.name + log_snapshot.AHEAD).exists()


async def test_a_memory_that_was_never_moved_to_the_store_is_not_thrown_away(store: Store) -> None:
    async with store.node(url="") as node:
        await node.put(SECOND, "only here\n")
    async with store.node() as node:
        with pytest.raises(StorageError, match="has nothing of it") as caught:
            await node.space()
        assert "store --to" in str(caught.value.hint)
    async with store.node(url="") as node:
        assert list(await node.texts()) == [SECOND]


async def test_where_a_store_has_lost_everything_a_space_does_not_begin_anew(store: Store) -> None:
    """Or whose address is another one's: the space is not opened as an empty one, and can be moved there again."""
    await written(store)
    store.sql("TRUNCATE log, entry, part")
    async with store.node() as node:
        with pytest.raises(StorageError, match="has nothing of it"):
            await node.space()
        assert "storage" in node.spaces.health_problems()
    with closing(open_state(store.folder())) as state:
        relocation.to_store(state, PostgresEngine(store.url), 3.0, follow=lambda _name: None)
    log_snapshot.remove(node.path)
    async with store.node() as node:
        assert sorted(await node.texts()) == ["memory/first.md", SECOND, "memory/third.md"]


async def test_a_file_from_before_the_move_is_kept_beside(store: Store, tmp_path: Path) -> None:
    """As an old backup has it: the log is right, and nothing is thrown away."""
    async with store.node(url="") as node:
        await node.put("memory/first.md", "the first note\n")
    shutil.copy(node.path, tmp_path / "before")
    with closing(open_state(store.folder())) as state:
        relocation.to_store(state, PostgresEngine(store.url), 3.0, follow=lambda _name: None)
    await written(store)
    shutil.copy(tmp_path / "before", node.path)
    async with store.node() as node:
        assert SECOND in await node.texts()
        assert "storage" in node.spaces.health_problems()
    assert node.path.with_name(node.path.name + log_snapshot.AHEAD).exists()


async def test_a_damaged_copy_is_fetched_anew_and_never_salvaged(store: Store) -> None:
    """Whether that is noticed when it is opened, or while it is used."""
    path = await written(store, with_snapshot=True)
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + bytes(len(whole) - 4096))
    async with store.node() as node:
        assert sorted(await node.texts()) == ["memory/first.md", SECOND, "memory/third.md"]
        first = await node.space()
        await first.threads.maintain(lambda store: store.outbox.discard())  # type: ignore[union-attr]
        entry = node.spaces._entries[node.space_id]
        await until("it to be closed", lambda: entry.space is not first)
        assert sorted(await node.texts()) == ["memory/first.md", SECOND, "memory/third.md"]
    assert [one.name for one in path.parent.iterdir() if "damaged" in one.name or "discarded" in one.name] == []


async def test_a_copy_that_is_behind_gets_what_it_lacks(store: Store, tmp_path: Path) -> None:
    """An older copy of the file, as a backup has it: what came since is applied, or all is fetched where it is no longer there."""
    async with store.node() as node:
        await node.put("memory/first.md", "the first note\n")
    shutil.copy(node.path, tmp_path / "older")
    await written(store)
    shutil.copy(tmp_path / "older", node.path)
    async with store.node() as node:
        assert SECOND in await node.texts()
        await snapshot_of(node)
    shutil.copy(tmp_path / "older", node.path)
    async with store.node() as node:
        assert SECOND in await node.texts()


async def test_a_full_disk_is_told_as_ever_and_what_is_acknowledged_is_in_the_log(
    store: Store, small_disk: Path, tmp_path: Path
) -> None:
    """A write that the disk has no room for is refused, or is there when there is room again; none is half there, none twice."""
    filled = Store(store.postgres, store.url, small_disk)
    texts = {}
    async with filled.node() as node:
        await node.space()
        (small_disk / "ballast").write_bytes(bytes(shutil.disk_usage(small_disk).free - 2**20))
        for number in range(200):
            path, text = f"memory/{number}.md", os.urandom(20_000).hex() + "\n"
            try:
                await node.put(path, text)
            except StorageError:
                break
            texts[path] = text
        else:
            pytest.fail("the disk did not fill up")
    assert texts
    elsewhere = tmp_path / "elsewhere"  # the keys and the registry alone
    shutil.copytree(small_disk / "one", elsewhere / "one", ignore=shutil.ignore_patterns(f"{node.space_id}*"))
    async with Store(store.postgres, store.url, elsewhere).node() as other:
        found = await other.texts()
    assert {path: found[path] for path in texts} == texts
    assert len(found) <= len(texts) + 1
