"""A space whose log is in PostgreSQL: what is acknowledged is there, and a copy of it can be thrown away at any moment."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.daemon.logged import Store, held
from tests.support.deadline import DEADLINE_S

from confide_cluster.daemon.log import log_outbox, log_snapshot
from confide_cluster.daemon.log.log_outbox import LogOutbox
from confide_cluster.daemon.spaces import replication
from confide_daemon.errors import StorageError
from confide_daemon.retrieval.indexing.indexer import Derivation
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.store.upkeep.integrity import UNCUT
from confide_night.daemon.task_service import Tasks


async def test_a_space_is_fetched_anew_where_its_file_is_lost(store: Store) -> None:
    """From the log alone, then from a snapshot and what came behind it; the index as the truths."""
    async with store.node() as node:
        await node.put("memory/a.md", "# Parrots\n\nthe grey parrot talks\n")
        await node.put("memory/b.md", "the cat is silent\n")
    before = held(node.path, node.key)
    log_snapshot.remove(node.path)
    async with store.node() as node:
        assert await node.texts() == {
            "memory/a.md": "# Parrots\n\nthe grey parrot talks\n",
            "memory/b.md": "the cat is silent\n",
        }
        space = await node.space()
        found = await space.index.searcher.search(SearchQuery("parrot"))
        assert "grey parrot" in str(found)
        space.outbox.take_snapshot()
        await node.put("memory/c.md", "and a dog\n")
    for table, rows in before.items():
        if table not in ("life", "given"):
            assert set(rows) <= set(held(node.path, node.key)[table]), table
    assert store.sql("SELECT count(*) FROM part WHERE part > 0")[0][0] >= 1
    log_snapshot.remove(node.path)
    async with store.node() as node:
        assert sorted(await node.texts()) == ["memory/a.md", "memory/b.md", "memory/c.md"]


async def test_use_counts_outlive_a_kill_though_nobody_waited_for_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are in the file until they are in the log: brought there by the next opening, and never as something older than the log."""
    async with store.node() as node:
        await node.put("memory/a.md", "read often\n")
        space = await node.space()
        with monkeypatch.context() as cut_off:
            cut_off.setattr(LogOutbox, "flush", lambda _self: None)
            space.usage.count([1])
            await space.usage._write()
            await node.spaces.close()
    assert store.sql("SELECT count(*) FROM node") == [(0,)]
    async with store.node() as node:
        await node.space()
    async with store.node("two") as two:
        await two.space()
    assert held(two.path, two.key)["document_use"] == held(node.path, node.key)["document_use"]
    assert len(held(two.path, two.key)["document_use"]) == 1


async def test_a_truth_that_changes_with_what_is_derived_goes_with_the_next_entry(store: Store) -> None:
    """It is in the file until then, in the same transaction."""

    def write(database: Any) -> None:
        with database.writing():
            database.marks.put("said", 1.0)
            database.behind(lambda: database.documents.count_uses({1: 5}, now=1.0))

    async with store.node() as node:
        await node.put("memory/a.md", "read often\n")
        space = await node.space()
        await space.part(Tasks)._looked.wait()  # what a space writes by itself once it is open
        await space.threads.write(write)
        assert space.outbox.has_pending
        ((before,),) = store.sql("SELECT head FROM log")
        await node.put("memory/b.md", "and this\n")
        assert not space.outbox.has_pending
        assert store.sql("SELECT head FROM log") == [(before + 1,)]
    async with store.node("two") as two:
        await two.space()
    assert held(two.path, two.key)["document_use"] == held(node.path, node.key)["document_use"] != []


async def test_a_text_that_cannot_be_cut_keeps_no_space_closed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its entry is in the log, so whoever opens the space meets it: others are indexed, it is told of, and tried again meanwhile."""
    async with store.node() as node:
        await node.put("memory/a.md", "the heron fishes\n")
        await node.put("memory/b.md", "the kestrel hovers\n")
    async with store.node("two") as two:
        await two.space()
    async with store.node() as node:
        documents = (await node.space()).documents
        await documents.put("p", "memory/a.md", "the heron sleeps\n", base=1, author="a")
    store.sql("DELETE FROM node")
    keep = Derivation.keep

    def fails(self: Derivation, to: Any, row: Any, text: str | None, now: float) -> Any:
        if row.path == "memory/a.md":
            raise ValueError(text)
        return keep(self, to, row, text, now)

    with monkeypatch.context() as fault:
        fault.setattr(Derivation, "keep", fails)
        async with store.node("two") as two:
            assert set(await two.texts()) == {"memory/a.md", "memory/b.md"}
            space = await two.space()
            found = await space.index.searcher.search(SearchQuery("kestrel or heron"))
            assert "hovers" in str(found)
            assert "fishes" not in str(found)  # pieces of a text that is not there any more
            await two.put("memory/c.md", "the bittern booms\n")
            await space.upkeep.check()
            assert not await space.wait_indexed(timeout_s=DEADLINE_S)
            status = await space.status(None)
            assert status.queued_pieces == 0  # the others have their vectors
            assert any("1 ValueError" in warning for warning in status.warnings)
            assert (status.health.state, status.health.breaches) == ("healing", [(UNCUT, 1)])
            assert space.health_problems() == {"index"}
            fault.undo()
            await space.upkeep.check()
            assert "sleeps" in str(await space.index.searcher.search(SearchQuery("heron")))
            assert await space.wait_indexed(timeout_s=DEADLINE_S)
            status = await space.status(None)
            assert (status.warnings, status.health.state, space.health_problems()) == ([], "ok", set())


async def test_what_waits_is_tried_again_where_the_disk_was_full(store: Store) -> None:
    """What brings it beside the writes knows the error for one of the storage, and goes on."""
    async with store.node() as node:
        await node.put("memory/a.md", "read often\n")
        space = await node.space()

        def refuse(database: Any) -> None:
            with database.writing_derived():
                database.documents.count_uses({1: 1}, now=1.0)
            database.connection.set_commit_hook(lambda: True)
            try:
                with pytest.raises(StorageError, match="bring what waits"):
                    database.outbox.flush()
            finally:
                database.connection.set_commit_hook(None)
            assert database.outbox.has_pending

        await space.threads.write(refuse)


async def test_a_snapshot_is_brought_by_itself_where_the_tail_is_long(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the space is used, beside its writes; and when it is closed with a tail that the next one would have to apply."""
    monkeypatch.setattr(replication, "EVERY_S", 0.01)
    monkeypatch.setattr(log_outbox, "SNAPSHOT_ENTRIES", 20)
    monkeypatch.setattr(log_outbox, "REST_ENTRIES", 5)
    async with store.node() as node:
        for number in range(30):
            await node.put(f"memory/{number}.md", f"note {number}\n")
        async with asyncio.timeout(DEADLINE_S):
            while not store.sql("SELECT base FROM log WHERE base >= 20"):  # noqa: ASYNC110 - it is told of nowhere
                await asyncio.sleep(0.02)
        ((before,),) = store.sql("SELECT base FROM log")
        monkeypatch.setattr(replication, "EVERY_S", 1000.0)
        for number in range(8):
            await node.put(f"memory/late{number}.md", f"note {number}\n")
    ((base, head, parts, oldest),) = store.sql(
        "SELECT base, head, (SELECT count(DISTINCT snapshot) FROM part), (SELECT min(number) FROM entry) FROM log"
    )
    assert base > before
    assert parts == 1
    assert head - base <= 5
    assert oldest is None or oldest > base
    log_snapshot.remove(node.path)
    async with store.node() as node:
        assert len(await node.texts()) == 38


async def test_a_snapshot_is_brought_for_vectors_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once no piece waits for one: whoever takes the space over without a file of it computes none again."""
    monkeypatch.setattr(replication, "EVERY_S", 0.01)
    monkeypatch.setattr(replication, "SNAPSHOT_VECTORS", 20)
    text = "\n\n".join(f"# Part {part}\n\n{'the tide comes and goes ' * 30}{part}" for part in range(30))
    async with store.node() as node:
        await node.put("memory/a.md", text)
        space = await node.space()
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        assert space.index.indexer.computed_pieces >= 20
        async with asyncio.timeout(DEADLINE_S):
            while not store.sql("SELECT base FROM log WHERE base > 0"):  # noqa: ASYNC110 - it is told of nowhere
                await asyncio.sleep(0.02)
        monkeypatch.setattr(replication, "REST_VECTORS", 10**6)
    async with store.node("two") as two:
        space = await two.space()
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        assert space.index.indexer.computed_pieces == 0
