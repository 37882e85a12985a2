"""A write whose entry is not answered for, and a node that is not the holder any more: nothing is lost, nothing is made twice."""

from __future__ import annotations

import asyncio
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from tests.chaos.cables import Cable
from tests.daemon.spaces.test_custodian import until
from tests.support.daemon.logged import Node, Store, held
from tests.support.daemon.postgres import server
from tests.support.deadline import DEADLINE_S
from tests.support.programs.processes import wait_until

from confide_cluster.daemon.log import log_snapshot
from confide_cluster.daemon.log.log_outbox import LogOutbox
from confide_cluster.daemon.log.log_tables import Appending, Log
from confide_cluster.daemon.log.postgres_engine import PostgresEngine
from confide_daemon.documents.writer import RepeatableChange
from confide_daemon.errors import EngineError, FencedError, StorageError
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.store.tables.pieces import PieceTable
from confide_night.daemon.task_service import Tasks

OPERATION = RepeatableChange("0f" * 16, "asked")


async def append(node: Node, text: str, operation: RepeatableChange | None = None) -> Any:
    space = await node.space()
    return await space.documents.append("p", "memory/log.md", text, heading=None, author="a", operation=operation)


async def until_made(node: Node, text: str, operation: RepeatableChange) -> Any:
    """What a machine does: it repeats its change under the operation's id until it is answered."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                return await append(node, text, operation)
            except EngineError:
                await asyncio.sleep(0.02)


def entries_of(store: Store, node: Node) -> int:
    """How many its space has in the engine."""
    ((count,),) = store.sql("SELECT count(*) FROM entry WHERE log = %s", node.space_id)
    return int(count)


@pytest.mark.parametrize("is_stored", [True, False])
async def test_what_is_not_answered_for_is_made_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, is_stored: bool
) -> None:
    """Whether the entry had come to the engine or not; the repeat is told as one where it had."""
    send, wait = Log.send, Appending.is_stored
    times = 0

    def unsent(self: Log, *values: Any) -> Appending:
        nonlocal times
        times += 1
        if times == 1:
            raise EngineError("it is lost on its way")
        return send(self, *values)

    def unanswered(self: Appending) -> bool:
        nonlocal times
        times += 1
        stored = wait(self)
        if times == 1:
            raise EngineError("the answer is lost")
        return stored

    async with store.node() as node:
        await append(node, "first\n")
        first = await node.space()
        await first.part(Tasks)._looked.wait()  # what a space writes by itself once it is open
        if is_stored:
            monkeypatch.setattr(Appending, "is_stored", unanswered)
        else:
            monkeypatch.setattr(Log, "send", unsent)
        with pytest.raises(EngineError):
            await append(node, "second\n", OPERATION)
        assert await node.texts() == {"memory/log.md": "first\n"}
        made = await until_made(node, "second\n", OPERATION)
        assert made.repeated is is_stored
        assert await node.texts() == {"memory/log.md": "first\n\nsecond\n"}
        assert (await node.space() is first) is not is_stored  # opened anew where the log had more
    log_snapshot.remove(node.path)
    async with store.node() as node:
        assert (await node.texts())["memory/log.md"].count("second") == 1


async def test_what_waited_for_an_entry_waits_on_where_that_is_lost(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes with the next one, though it is in no change that was made since."""

    class Lost:
        def is_stored(self) -> bool:
            raise EngineError("it is lost on its way")

        def drop(self) -> None: ...

    async with store.node() as node:
        await append(node, "first\n")
        space = await node.space()
        await space.part(Tasks)._looked.wait()
        space.usage.count([1])
        await space.usage._write()
        with monkeypatch.context() as away:
            away.setattr(Log, "send", lambda *_: Lost())
            with pytest.raises(EngineError, match="lost"):
                await append(node, "second\n", OPERATION)
        await until_made(node, "second\n", OPERATION)
        assert await node.space() is space
    async with store.node("two") as two:
        await two.space()
    uses = held(two.path, two.key)["document_use"]
    assert uses == held(node.path, node.key)["document_use"] != []


async def test_what_cannot_be_derived_once_it_is_sent_is_made_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the disk is full by then: nothing is acknowledged, nothing is here, and the repeat finds it in the log."""
    derive = PieceTable.replace
    sent: list[bool] = []

    def fail(self: PieceTable, *values: Any, **options: Any) -> Any:
        outbox = self._database.outbox
        assert outbox is not None
        if not sent:
            sent.append(outbox._is_doubtful)  # type: ignore[attr-defined]
            # It is on its way; were it given up before the engine has it, there would be nothing to find.
            wait_until("the entry to be in the log", lambda: entries_of(store, node) > before)
            raise StorageError("the disk is full")
        return derive(self, *values, **options)

    async with store.node() as node:
        await append(node, "first\n")
        first = await node.space()
        await first.part(Tasks)._looked.wait()
        first.usage.count([1])
        await first.usage._write()  # it waits for the next entry
        before = entries_of(store, node)
        monkeypatch.setattr(PieceTable, "replace", fail)
        with pytest.raises(StorageError, match="full"):
            await append(node, "second\n", OPERATION)
        assert sent == [True]
        assert await node.texts() == {"memory/log.md": "first\n"}
        made = await until_made(node, "second\n", OPERATION)
        assert made.repeated
        assert await node.texts() == {"memory/log.md": "first\n\nsecond\n"}
        found = await (await node.space()).index.searcher.search(SearchQuery("second"))
        assert "second" in str(found)
    log_snapshot.remove(node.path)
    async with store.node() as other:
        assert (await other.texts())["memory/log.md"].count("second") == 1


async def test_while_the_engine_is_away_searches_go_on_and_writes_are_told_so(store: Store, tmp_path: Any) -> None:
    """They are stored once it is back, by the same node and without a restart."""
    with server() as postgres:
        away = Store(postgres, postgres.database(), tmp_path / "away")
        async with away.node() as node:
            await append(node, "the grey parrot\n")
            postgres.stop(signal.SIGQUIT)
            with pytest.raises(EngineError) as caught:
                await append(node, "unheard\n", OPERATION)
            assert caught.value.code == "unavailable"
            found = await (await node.space()).index.searcher.search(SearchQuery("parrot"))
            assert "grey parrot" in str(found)
            await until("its health to say so", lambda: "storage" in node.spaces.health_problems())
            # The space may be unwell before the heartbeat has noticed.
            space = await node.space()
            async with asyncio.timeout(DEADLINE_S):
                while not [one for one in (await space.status(None)).warnings if "does not answer since" in one]:  # noqa: ASYNC110 - looked at from outside
                    await asyncio.sleep(0.02)
            postgres.start()
            await until_made(node, "heard\n", OPERATION)
            assert await node.texts() == {"memory/log.md": "the grey parrot\n\nheard\n"}
            await until("its health to be well", lambda: "storage" not in node.spaces.health_problems())


def test_a_statement_of_a_former_lease_stores_nothing_when_it_comes_late(store: Store) -> None:
    """Also where nothing was written since the lease was taken anew, and of two that take it at once one alone may write."""
    engine = PostgresEngine(store.url)
    engine.ready()
    space_log = Log(engine, "s", lambda: 1, 3.0)
    with ThreadPoolExecutor(2) as pool:
        leases = sorted(pool.map(lambda _: space_log.take().lease, range(2)))
    assert leases == [1, 2]
    assert not space_log.append(1, 1, 14, b"late")
    assert space_log.append(1, 2, 14, b"first")
    assert not space_log.append(1, 2, 14, b"another of that number")
    assert [entry.body for entry in space_log.entries(0)] == [b"first"]
    engine.close()


async def test_an_engine_that_goes_silent_is_waited_for_no_longer_than_the_deadline(store: Store) -> None:
    """Nothing is answered, and no connection ends. What came to it is there once when it speaks again."""
    cable = Cable(store.postgres.port)
    try:
        name = store.url.rpartition("/")[2]
        async with store.node(url=store.postgres.url(name, cable.port), lease_s=600) as node:
            await append(node, "the grey parrot\n")
            assert node.leases is not None
            node.leases._engine.deadline_s = 0.3
            cable.hold()
            async with asyncio.timeout(DEADLINE_S):
                with pytest.raises(EngineError, match="in time"):
                    await append(node, "heard\n", OPERATION)
            found = await (await node.space()).index.searcher.search(SearchQuery("parrot"))
            assert "grey parrot" in str(found)
            cable.mend()
            node.leases._engine.deadline_s = 5.0
            await until_made(node, "heard\n", OPERATION)
            assert await node.texts() == {"memory/log.md": "the grey parrot\n\nheard\n"}
    finally:
        cable.close()


async def test_a_write_is_one_round_trip_and_an_entry_is_small(store: Store) -> None:
    """Of a note of usual length, with all that is true of it."""
    async with store.node(lease_s=600) as node:
        await append(node, "first\n")
        assert node.leases is not None
        trips: list[int] = []
        node.leases._engine.on_answer = lambda: trips.append(1)
        counted = []
        for number in range(5):
            before = len(trips)
            await node.put(
                f"memory/notes/{number}.md", f"---\ntags: [a, b]\n---\n# Note {number}\n\n{'some words ' * 30}\n"
            )
            counted.append(len(trips) - before)
        assert sorted(counted)[2] == 1  # what is brought beside the writes may fall into one of them
    assert store.sql("SELECT max(length(body)) <= 2048 FROM entry") == [(True,)]


async def test_a_space_is_held_by_one_node_and_the_next_has_all_of_it(store: Store) -> None:
    """Another one is refused while the holder lives, and has it at once when that ends."""
    async with store.node("two") as two:
        async with store.node("one") as one:
            await append(one, "of one\n")
            with pytest.raises(FencedError, match="another node"):
                await two.space()
        assert await two.texts() == {"memory/log.md": "of one\n"}
        await append(two, "of two\n")
    assert held(one.path, one.key) != held(two.path, two.key)
    async with store.node("one") as one:
        assert await one.texts() == {"memory/log.md": "of one\n\nof two\n"}


async def test_who_is_taken_for_dead_writes_nothing_any_more(store: Store) -> None:
    """It has the space again, with what the other has written, once that lets go of it."""
    async with store.node("one") as one:
        await append(one, "of one\n")
        await silenced(one)
        async with store.node("two") as two:
            await append(two, "of two\n")
            with pytest.raises(FencedError):
                await append(one, "lost?\n", OPERATION)
            with pytest.raises(FencedError):  # it asks for the lease, which the other has
                await append(one, "lost?\n", OPERATION)
        await until_made(one, "not lost\n", OPERATION)
        assert await one.texts() == {"memory/log.md": "of one\n\nof two\n\nnot lost\n"}


async def test_who_was_stopped_does_not_show_what_another_has_written_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that stood still, or whose machine slept: it asks before it shows anything, and has the other's text in the end."""
    async with store.node("one") as one:
        await append(one, "of one\n")
        await silenced(one)
        assert one.leases is not None
        async with store.node("two") as two:
            await append(two, "of two\n")
            # As if so much time had passed by its own clock.
            monkeypatch.setattr(one.leases, "_confirmed_at", float("-inf"))
            with pytest.raises(FencedError):
                await one.texts()
        async with asyncio.timeout(DEADLINE_S):
            while True:
                with suppress(FencedError):  # on a busy machine the other one may not have said that it ends
                    assert await one.texts() == {"memory/log.md": "of one\n\nof two\n"}
                    break
                await asyncio.sleep(0.1)


async def silenced(node: Node) -> None:
    """The heartbeat of a node stops, and that was long ago."""
    assert node.leases is not None
    assert node.leases._beating is not None
    node.leases._beating.cancel()
    await asyncio.gather(node.leases._beating, return_exceptions=True)
    engine = node.leases._engine
    engine.run("UPDATE node SET seen_at = now() - interval '1 hour' WHERE id = %(id)s", {"id": node.leases._node})


async def test_a_snapshot_whose_parts_another_node_has_removed_meanwhile_is_none(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node has the space again before the last part is there, by a lease of its own: of 10,000 drawn schedules one came upon it."""
    is_last, goes_on = threading.Event(), threading.Event()
    bring, send = Log.bring_part, Log.send

    def slow(self: Log, number: int, part: int, body: bytes) -> None:
        if part == 0:
            is_last.set()
            assert goes_on.wait(DEADLINE_S)
        bring(self, number, part, body)

    def unsent(*_: Any) -> Any:
        monkeypatch.setattr(Log, "send", send)
        raise EngineError("it is lost on its way")

    async with store.node() as node:
        await append(node, "first\n")
        space = await node.space()
        await space.part(Tasks)._looked.wait()
        outbox = space.outbox
        assert isinstance(outbox, LogOutbox)
        monkeypatch.setattr(Log, "bring_part", slow)
        bringing = asyncio.create_task(asyncio.to_thread(outbox.take_snapshot))
        await asyncio.to_thread(is_last.wait, DEADLINE_S)
        # What another node does that takes the space, and gives it back.
        store.sql("UPDATE log SET lease = lease + 1, holder = NULL WHERE id = %s", node.space_id)
        store.sql("DELETE FROM part WHERE log = %s", node.space_id)
        monkeypatch.setattr(Log, "send", unsent)
        await until_made(node, "second\n", OPERATION)
        goes_on.set()
        with pytest.raises(FencedError):
            await bringing
        path = node.path
    log_snapshot.remove(path)
    async with store.node() as node:
        assert (await node.texts())["memory/log.md"] == "first\n\nsecond\n"


async def test_a_node_that_stood_still_removes_no_part_of_what_another_has_brought(store: Store) -> None:
    """It has taken the space and opens it, while another one holds it by now and has brought a snapshot."""
    async with store.node() as node:
        await append(node, "first\n")
        outbox = (await node.space()).outbox
        assert isinstance(outbox, LogOutbox)
        there = outbox._log
        stood_still = there.take(anew=True)
        late = there.take(anew=True)
        outbox.lease = late.lease
        await asyncio.to_thread(outbox.take_snapshot)
        before = store.sql("SELECT snapshot, part FROM part ORDER BY part")
        there.sweep(stood_still)
        assert store.sql("SELECT snapshot, part FROM part ORDER BY part") == before != []
        there.sweep(late)
        assert store.sql("SELECT count(*) FROM part") == [(0,)], (
            "which says that its own parts would go, were they not settled"
        )
