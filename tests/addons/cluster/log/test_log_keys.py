"""Keys of a logged space: changed, kept by its machines, and nowhere in the engine; and versions of its schema."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.daemon.logged import NAME, Store
from tests.support.deadline import DEADLINE_S
from tests.support.kills.rekey_kills import DEVICE, KEYS, rotated

from confide_cluster.daemon.log import log_snapshot, opening
from confide_cluster.daemon.log.log_outbox import LogOutbox
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_daemon.errors import EngineError, LockedError, StorageError
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.sealing.unsealed_texts import SpaceTexts
from confide_daemon.store import migrations
from confide_daemon.store.threads import StoreThreads
from confide_daemon.store.upkeep import copies

CANARIES = ("kingfisher", "verdigris", "marzipan", "quicksilver")


def told(_done: int, _total: int) -> None:
    """Nobody follows."""


async def test_another_key_is_in_the_log_before_it_is_here(store: Store) -> None:
    """The snapshot is under it, no entry under the old one is left, and who has no file of the space opens it."""
    async with store.node() as node:
        await node.put("memory/a.md", "under the first key\n")
        await node.spaces.renew(node.space_id, told)
        await node.put("memory/b.md", "under the second key\n")
    assert store.sql("SELECT custody->'key'->>'number' FROM log") == [("1",)]
    assert store.sql("SELECT min(number) > (SELECT base FROM log) FROM entry") == [(True,)]
    async with store.node("two") as two:
        assert sorted(await two.texts()) == ["memory/a.md", "memory/b.md"]
        await two.spaces.renew(two.space_id, told)
    async with store.node() as node:  # its file is under a key that is no longer anybody's
        assert sorted(await node.texts()) == ["memory/a.md", "memory/b.md"]


@pytest.mark.parametrize("step", ["swap", "before it"])
async def test_a_key_that_could_not_be_changed_here_leaves_one_that_opens_both(
    store: Store, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The log has the new one, and the file could not be replaced: it is fetched."""
    async with store.node() as node:
        await node.put("memory/a.md", "some text\n")
        if step == "swap":
            whole = copies.put_in_place

            def failing(copy: Path, path: Path) -> None:
                if copy.name.endswith(".rekeying"):
                    raise OSError(5, "input/output error")
                whole(copy, path)

            monkeypatch.setattr(copies, "put_in_place", failing)
        else:

            def waiting(_threads: StoreThreads, _work: object) -> None:
                raise StorageError("cannot replace the database: a reading does not end")

            monkeypatch.setattr(StoreThreads, "alone", waiting)
        with pytest.raises(StorageError):
            await node.spaces.renew(node.space_id, told)
        assert list(await node.texts()) == ["memory/a.md"]
        monkeypatch.undo()
        async with asyncio.timeout(DEADLINE_S):
            while True:
                with suppress(StorageError):
                    await node.put("memory/b.md", "goes on\n")
                    break
                await asyncio.sleep(0.02)
    log_snapshot.remove(node.path)
    async with store.node() as node:
        assert sorted(await node.texts()) == ["memory/a.md", "memory/b.md"]


async def test_a_space_whose_machines_keep_the_key_is_fetched_once_they_bring_it(store: Store) -> None:
    """Its file, and what says who keeps its key, are lost; meanwhile another epoch has begun."""
    first = SpaceKeys(KEYS.space, KEYS.epochs[:1])
    roster, _ = Roster.create(DEVICE, NAME, now=0, keys=first)
    async with store.node(keeper="caller") as node:
        node.spaces.rosters.extend(node.space_id, roster.entries[0].encode(), by=NAME)
        await node.spaces.unlock(node.space_id, {1: KEYS.database_key(1)}, may_change=True)
        await node.put("memory/a.md", "ours\n")
    log_snapshot.remove(node.path)
    node.state.folder.custody(node.space_id).unlink()
    async with store.node(keeper="caller") as node:
        new_epoch = rotated(Roster.read([roster.entries[0].encode()]))
        node.spaces.rosters.extend(node.space_id, new_epoch, by=NAME)
        with pytest.raises(LockedError):
            await node.space()
        assert node.spaces.missing_epochs(node.space_id, 2) == [1, 2]
        keys = {epoch: KEYS.database_key(epoch) for epoch in (1, 2)}
        await node.spaces.unlock(node.space_id, keys, may_change=True)
        assert list(await node.texts()) == ["memory/a.md"]
        changing = node.spaces._entries[node.space_id].changing
        assert changing is not None
        await changing
    assert store.sql("SELECT custody->'key' FROM log") == [({"keeper": "caller", "number": 2},)]


async def test_the_engine_has_nothing_that_can_be_read(store: Store) -> None:
    """Neither its files nor a dump: no text, no name, no question, no key; entries and snapshots are there."""
    began = time.time() - 1
    async with store.node() as node:
        await node.put(f"memory/{CANARIES[0]}.md", f"# {CANARIES[1]}\n\nthe {CANARIES[2]} is green\n")
        space = await node.space()
        await space.index.searcher.search(SearchQuery(CANARIES[3]))
        assert space.outbox is not None
        await space.threads.maintain(lambda store: store.outbox.take_snapshot())  # type: ignore[union-attr]
        await node.put(f"memory/{CANARIES[0]}2.md", f"{CANARIES[2]}\n")
    keys = [node.key, node.state.folder.identity.read_bytes().strip(), node.state.folder.master.read_bytes()]
    store.sql("CHECKPOINT")
    found = [store.postgres.dump(store.url)]
    files = [path for path in store.postgres.files.rglob("*") if path.is_file() and path.stat().st_mtime >= began]
    found += [path.read_bytes() for path in files]
    everything = b"".join(found)
    assert any(path.parent.name == "pg_wal" for path in files)
    assert b"log" in everything
    assert node.space_id.encode() in everything
    needles: list[bytes] = [word.encode() for word in CANARIES]
    needles += [form for key in keys for form in (key, key.hex().encode())]
    needles.append(NAME.encode())
    assert [needle for needle in needles if needle in everything] == []


async def test_an_upgrade_begins_with_a_snapshot_and_older_versions_keep_out(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an older version wrote is applied as it was meant, by who has no file; then the log is the newer one's."""
    every = migrations.migrations()
    step = (every[-1][0] + 1, "ALTER TABLE document ADD COLUMN colour TEXT")

    def speak(*, newest: bool) -> None:
        for module in (migrations, opening):
            monkeypatch.setattr(module, "migrations", lambda *_: (*every, step) if newest else every)

    speak(newest=False)
    async with store.node() as node:
        await node.put("memory/a.md", "by the older one\n")
    assert store.sql("SELECT schema, snapshot FROM log") == [(every[-1][0], None)]
    speak(newest=True)
    async with store.node("two") as two:
        assert list(await two.texts()) == ["memory/a.md"]
        await two.put("memory/b.md", "by the newer one\n")
    ((schema, base, head),) = store.sql("SELECT schema, base, head FROM log")
    assert schema == step[0]
    assert 0 < base < head
    speak(newest=False)
    async with store.node() as node:
        with pytest.raises(StorageError, match="newer"):
            await node.space()


async def test_a_copy_that_took_a_step_before_the_log_is_fetched_anew(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer node was killed behind the step of its copy; an older one writes on. The step is done to what that wrote, too."""
    every = migrations.migrations()
    step = (every[-1][0] + 1, "ALTER TABLE document ADD COLUMN colour TEXT; UPDATE document SET colour = 'of ' || path")

    def speak(*, newest: bool) -> None:
        for module in (migrations, opening):
            monkeypatch.setattr(module, "migrations", lambda *_: (*every, step) if newest else every)

    async with store.node() as node:
        await node.put("memory/a.md", "by the older one\n")
    speak(newest=True)
    with monkeypatch.context() as killed:
        killed.setattr(LogOutbox, "take_snapshot", lambda _outbox: (_ for _ in ()).throw(EngineError("it is killed")))
        async with store.node("two") as two:
            with pytest.raises(EngineError, match="killed"):
                await two.space()
    speak(newest=False)
    async with store.node() as node:
        await node.put("memory/b.md", "by the older one again\n")
    speak(newest=True)
    async with store.node("two") as two:
        space = await two.space()
        found = await space.threads.read(
            lambda one: one.connection.execute("SELECT path, colour FROM document ORDER BY path").fetchall()
        )
    assert found == [("memory/a.md", "of memory/a.md"), ("memory/b.md", "of memory/b.md")]


async def test_cleaning_leaves_no_older_text_in_the_engine(store: Store) -> None:
    """`confide secrets scan --stored` ends with a snapshot of the clean file, and nothing before it."""
    async with store.node() as node:
        await node.put("memory/a.md", "a password that is gone\n")
        space = await node.space()
        before = store.sql("SELECT max(number) FROM entry")[0][0]
        await SpaceTexts(space.threads, space.index.indexer, space.index.searcher).erase()
        await node.put("memory/b.md", "later\n")
    ((base, oldest, parts),) = store.sql(
        "SELECT base, (SELECT min(number) FROM entry), (SELECT count(DISTINCT snapshot) FROM part) FROM log"
    )
    assert base >= before
    assert oldest == base + 1
    assert parts == 1
