"""What goes wrong around the indexer: a full disk, a fault of our own, a model that hangs. Nothing is paid twice, mixed, or silent."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.providers.generations import KEY, MarkedEmbedder, ask, fill, handle, models, opened, until
from tests.support.providers.provider_server import KEY as KEY_OF_PROVIDER
from tests.support.providers.provider_server import ProviderServer, documented

from confide_daemon.config import ChunkSettings, DaemonConfig, EmbeddingConfig
from confide_daemon.datadir import disk as datadir
from confide_daemon.embedding import BatchLimits, LoadedModel, Vectors
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.errors import QuotaError, StorageError
from confide_daemon.retrieval.indexing import indexer
from confide_daemon.retrieval.indexing.generations import Patience
from confide_daemon.retrieval.indexing.indexed_model import MonthlyBudget
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces.models import IndexSettings, former, index_settings, start
from confide_daemon.spaces.space import Space
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.pieces import Generation


class Disk:
    """How much room the system says there is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real = os.statvfs
        self.is_full = False

        def statvfs(path: Any) -> Any:
            return SimpleNamespace(f_bavail=16, f_frsize=4096) if self.is_full else real(path)

        monkeypatch.setattr(os, "statvfs", statvfs)


@pytest.mark.parametrize("price", [0.0, 1.0])
async def test_nothing_is_embedded_or_counted_that_the_disk_has_no_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, price: float
) -> None:
    """However often it is tried again; when there is room, waiting for the vectors is enough to get them."""
    disk = Disk(monkeypatch)
    # A look at the rows that falls into the time of the full disk, on a busy machine, warns of it until the next look.
    monkeypatch.setattr("confide_daemon.spaces.maintenance.Upkeep.start", lambda self: None)
    (model,) = models(1)
    async with opened(tmp_path / "s.db", [handle(model, price=price, monthly_tokens=500)]) as space:
        await fill(space, 3)
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        before = (await space.status(None)).providers[0].tokens
        disk.is_full = True
        for number in range(3, 8):
            await fill(space, 1, start=number)
            assert not await space.wait_indexed(timeout_s=DEADLINE_S)
        status = await space.status(None)
        assert len(model.embedded) == 3
        assert status.providers[0].tokens == before
        assert any("nearly full" in warning for warning in status.warnings)
        disk.is_full = False
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        assert not (await space.status(None)).warnings
    assert set(model.embedded.values()) == {1}
    assert len(model.embedded) == 8


async def test_vectors_and_new_generations_wait_while_there_is_little_room(tmp_path: Path) -> None:
    """Stores go on and are found by their words, and status and searches say why. When there is room it all goes on, unasked."""
    disk = datadir.Disk(tmp_path)
    first, second = models(2)
    async with opened(tmp_path / "s.db", [handle(first)], disk=disk) as space:
        await fill(space, 3)
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        await until(space, lambda status: space.is_at_rest)  # a round that has begun asks for room no more
        disk.is_low = True
        await fill(space, 2, start=3)
        assert not await space.wait_indexed(timeout_s=DEADLINE_S)
        await until(space, lambda status: space.is_at_rest)
        found = await space.index.searcher.search(SearchQuery("number4"))
        assert found.hits[0].path == "memory/4.md"
        assert indexer.NO_ROOM in found.warnings
        assert indexer.NO_ROOM in (await space.status(None)).warnings
        assert disk.waiting == ["vectors"]
        assert not space.health_problems()
    assert len(first.embedded) == 3
    settings = IndexSettings(chunks=ChunkSettings.parse("original"), patience=Patience(0.0, 0.0))
    async with opened(tmp_path / "s.db", [handle(second), handle(first)], settings=settings, disk=disk) as space:
        assert not await space.wait_indexed(timeout_s=DEADLINE_S)
        assert [one.model for one in (await space.status(None)).generations] == [first.model]
        assert disk.waiting == ["generations", "vectors"]
        assert not second.embedded
        disk.is_low = False
        for listener in disk._listeners:
            listener()
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        status = await space.status(None)
        assert not status.warnings
        assert next(one.model for one in status.generations if one.state == "live") == second.model
        assert len(second.embedded) == 5
    assert not disk._listeners


async def test_documents_are_not_cut_again_on_the_last_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change of settings: the pieces that are there are found, and what is stored has the room."""
    disk = Disk(monkeypatch)
    async with opened(tmp_path / "s.db", [LoadedModel.none()]) as space:
        await fill(space, 3)
    disk.is_full = True
    settings = IndexSettings(chunks=ChunkSettings.parse("original"))
    async with opened(tmp_path / "s.db", [LoadedModel.none()], settings=settings) as space:
        assert not await space.wait_indexed(timeout_s=DEADLINE_S)
        waiting = await space.threads.read(
            lambda store: store.documents.documents_to_cut(settings.chunks.name, limit=10)
        )
        assert len(waiting) == 3
        assert (await space.index.searcher.search(SearchQuery("number1"))).hits
        await fill(space, 1, start=3)


async def test_a_fault_of_our_own_is_told_and_ends_neither_searches_nor_the_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be cut is told, found by the pieces that it has, and tried again when asked to. The error's own text, which may quote a
    document, is not repeated."""
    (model,) = models(1)
    async with opened(tmp_path / "s.db", [handle(model)]) as space:
        await fill(space, 2)
        assert await space.wait_indexed(timeout_s=DEADLINE_S)

    def broken(text: str, settings: ChunkSettings, *, is_log: bool) -> None:
        raise ValueError(f"cannot cut {text}")

    settings = IndexSettings(chunks=ChunkSettings.parse("original"), patience=Patience(0.0, 0.0))
    with monkeypatch.context() as fault:
        fault.setattr(indexer, "cut", broken)
        async with opened(tmp_path / "s.db", [handle(model)], settings=settings) as space:
            assert not await space.wait_indexed(timeout_s=DEADLINE_S)
            status = await space.status(None)
            assert any("cannot be cut: 2 ValueError" in warning for warning in status.warnings)
            assert "index" in space.health_problems()
            found = await space.index.searcher.search(SearchQuery("number1 pool"))
            assert found.hits
            assert any("cannot be cut" in warning for warning in found.warnings)
            fault.undo()
            assert await space.wait_indexed(timeout_s=DEADLINE_S)
            await until(space, lambda status: not status.warnings)
            assert not space.health_problems()
    assert "number1" not in caplog.text


async def test_a_fault_while_vectors_are_stored_does_not_spin(tmp_path: Path) -> None:
    """It is told, and tried again when somebody asks."""
    tries = 0

    class Broken(MarkedEmbedder):
        @property  # type: ignore[misc]
        def limits(self) -> BatchLimits:  # type: ignore[override]
            nonlocal tries
            tries += 1
            raise KeyError("limits")

        @limits.setter
        def limits(self, value: BatchLimits) -> None: ...

    async with opened(tmp_path / "s.db", [handle(Broken("model-0", 0))]) as space:
        await fill(space, 1)
        assert not await space.wait_indexed(timeout_s=5)
        assert "index" in space.health_problems()
        before = tries
        await asyncio.sleep(0.3)
        assert tries == before


# ---------------------------------------------------------------- never mixed, never twice


async def test_a_renamed_document_takes_its_vectors_along(tmp_path: Path) -> None:
    """The same text under another path, in whichever order the two changes come, is not embedded again and found by its meaning."""
    (model,) = models(1)
    async with opened(tmp_path / "s.db", [handle(model)]) as space:
        await fill(space, 4)
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        for number, removed_first in ((1, True), (2, False)):
            text = (await space.documents.read("p", f"memory/{number}.md")).text
            if removed_first:
                await space.documents.remove("p", f"memory/{number}.md", base=1, author="a")
                assert await space.wait_indexed(timeout_s=DEADLINE_S)
            await space.documents.put("p", f"memory/moved{number}.md", text, base=0, author="a")
            if not removed_first:
                assert await space.wait_indexed(timeout_s=DEADLINE_S)
                await space.documents.remove("p", f"memory/{number}.md", base=1, author="a")
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        assert (await ask(space, [model]))[:2] == ("hybrid", "model-0")
        result = await space.index.searcher.search(SearchQuery("pool number", min_score=0.0, max_results=50))
        moved = [hit for hit in result.hits if "moved" in hit.path]
        assert len(moved) == 2
        assert all(hit.vector is not None for hit in moved)
    assert set(model.embedded.values()) == {1}


async def replaced(path: Path, new: MarkedEmbedder) -> MarkedEmbedder:
    """Indexes notes with a model, and then has it that they were indexed with the other one, which goes under its name."""
    old = MarkedEmbedder("model-0", 0)
    async with opened(path, [handle(old)]) as space:
        await fill(space, 40)
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
    store = Store.open(path, KEY, writer=True, now=time.time())
    with store.writing():
        store.rows("UPDATE generation SET model = ?", (new.model,))
    store.close()
    return old


async def test_vectors_that_are_computed_anew_are_never_the_old_ones_by_way_of_the_cache(tmp_path: Path) -> None:
    """A document moves while everything is computed anew because the model was replaced under its name."""
    new = MarkedEmbedder("model-1", 1)
    old = await replaced(tmp_path / "s.db", new)
    async with opened(tmp_path / "s.db", [handle(new)]) as space:
        new.open.clear()
        await space.rebuild(reembed=True)
        await until(space, lambda status: len(status.generations) == 2)
        text = (await space.documents.read("p", "memory/33.md")).text
        await space.documents.remove("p", "memory/33.md", base=1, author="a")
        await space.documents.put("p", "memory/moved.md", text, base=0, author="a")
        new.open.set()
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        assert (await ask(space, [old, new]))[:2] == ("hybrid", "model-1")


async def test_a_foreign_model_is_computed_anew_once_however_often_it_is_looked_at(tmp_path: Path) -> None:
    """Looking again, as `confided doctor --fix` does, must not begin again what is under way."""

    class Slow(MarkedEmbedder):
        def embed_documents(self, texts: Sequence[str]) -> Vectors:
            time.sleep(0.05)
            return super().embed_documents(texts)

    new = Slow("model-1", 1, limits=BatchLimits(texts=2))
    await replaced(tmp_path / "s.db", new)
    async with opened(tmp_path / "s.db", [handle(new)]) as space:
        await space.upkeep.check()
        status = await until(space, lambda status: len(status.generations) == 2)
        building = status.generations[-1].id
        for _ in range(3):
            await space.upkeep.check()
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        status = await until(space, lambda status: len(status.generations) == 1)
        assert status.generations[0].id == building


def test_a_call_that_fails_in_the_next_month_takes_nothing_from_its_count(tmp_path: Path) -> None:
    """What it was counted for stays in the month it was counted in."""
    now = [datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC).timestamp()]
    budget = MonthlyBudget(lambda: now[0])
    budget.spend("openai", "small", 100, limit=1000)
    now[0] += 2
    budget.give_back("openai", "small", 100)
    budget.spend("openai", "small", 50, limit=1000)
    store = Store.open(tmp_path / "s.db", KEY, writer=True, now=now[0])
    budget.flush(store)
    again = MonthlyBudget(lambda: now[0])
    again.load(store)
    assert again.used_tokens("openai") == 50
    store.close()


# ---------------------------------------------------------------- nobody waits


async def test_closing_does_not_wait_for_a_model_that_is_being_looked_at(tmp_path: Path) -> None:
    """A server that costs nothing and hangs, while it is asked whether its vectors are still the same."""
    (model,) = models(1)
    async with opened(tmp_path / "s.db", [handle(model)]) as space:
        await fill(space, 3)
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        model.open.clear()
        calls = model.calls
        checking = asyncio.create_task(space.upkeep.check())
        async with asyncio.timeout(10):
            while model.calls == calls:  # noqa: ASYNC110 - the model's thread tells nobody
                await asyncio.sleep(0.01)
        async with asyncio.timeout(10):
            await space.upkeep.close()
            await checking
    model.open.set()


async def measured(space: Space) -> None:
    """Wait until the meaning of the model's cosines is known; the first search begins to measure it."""
    for _ in range(600):
        if (await space.index.searcher.search(SearchQuery("pool"))).mode == "hybrid":
            return
        await asyncio.sleep(0.05)


async def test_many_questions_of_a_slow_model_wait_no_longer_than_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those whose turn does not come are answered by keywords in time, and say why."""
    monkeypatch.setattr("confide_daemon.embedding.model.QUERY_DEADLINE_S", 1.5)

    class Slow(MarkedEmbedder):
        def embed_query(self, text: str) -> Vectors:
            if "slow" in text:
                time.sleep(1.0)
            return np.asarray(super().embed_query(text))

    model = Slow("model-0", 0)
    async with opened(tmp_path / "s.db", [handle(model)]) as space:
        await fill(space, 3)
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        await measured(space)
        started = time.monotonic()
        results = await asyncio.gather(
            *(space.index.searcher.search(SearchQuery(f"slow pool {number}", min_score=0.0)) for number in range(60))
        )
        assert time.monotonic() - started < 12  # one after the other in four threads they would take fifteen
        assert {result.mode for result in results} == {"hybrid", "keyword"}
        assert all(result.hits for result in results)


def test_a_model_that_is_refused_while_it_loads_is_tried_again_when_somebody_has_acted() -> None:
    """As with a server that does not have the model yet: pulled there, it serves without a restart of the daemon."""
    pulled, told = threading.Event(), threading.Semaphore(0)

    def load() -> HashedEmbedder:
        if not pulled.is_set():
            raise QuotaError("the embedding server does not know the model")
        return HashedEmbedder(8)

    made = LoadedModel(load, name="compatible")
    made.on_settled(told.release)
    assert told.acquire(timeout=DEADLINE_S)
    assert made.state == "failed"
    pulled.set()
    made.load_again()
    assert told.acquire(timeout=DEADLINE_S)
    assert (made.state, made.failure) == ("ready", None)
    made.close()


async def test_a_search_of_a_closed_space_says_so(tmp_path: Path) -> None:
    """As every other use of it."""
    (model,) = models(1)
    async with opened(tmp_path / "s.db", [handle(model)]) as space:
        await fill(space, 1)
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        assert (await space.index.searcher.search(SearchQuery("another question"))).mode == "hybrid"
    with pytest.raises(StorageError, match="closed"):
        await space.index.searcher.search(SearchQuery("a question"))


async def test_spaces_together_ask_no_more_at_once_than_the_model_takes(tmp_path: Path) -> None:
    """Else they would take each other's connections, and those of questions, and have it for an outage."""

    class Counting(MarkedEmbedder):
        now = most = 0

        def embed_documents(self, texts: Sequence[str]) -> Vectors:
            with self._lock:
                self.now += 1
                self.most = max(self.most, self.now)
            time.sleep(0.05)
            with self._lock:
                self.now -= 1
            return super().embed_documents(texts)

    model = Counting("model-0", 0, limits=BatchLimits(texts=2, concurrency=2))
    shared = handle(model)
    async with (
        opened(tmp_path / "1.db", [shared]) as one,
        opened(tmp_path / "2.db", [shared]) as two,
        opened(tmp_path / "3.db", [shared]) as three,
    ):
        model.open.clear()
        for number, space in enumerate((one, two, three)):
            await fill(space, 12, start=100 * number)
        model.open.set()
        assert all(await asyncio.gather(*(space.wait_indexed(timeout_s=DEADLINE_S) for space in (one, two, three))))
    assert model.most == 2


# ---------------------------------------------------------------- another model of the same provider


def asked_of(server: ProviderServer, question: str) -> list[str]:
    """The models that a question went to."""
    return [body["model"] for body in server.asked if body["input"] == [question]]


async def test_the_model_before_answers_questions_until_the_new_one_of_its_provider_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From one model of OpenAI's to another: nothing but the name changes in daemon.toml, and no search falls back to keywords."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY_OF_PROVIDER)
    # On a busy machine the provider's answer may take longer than a question waits for, and keywords are right then.
    monkeypatch.setattr("confide_daemon.embedding.remote.QUERY_DEADLINE_S", DEADLINE_S)
    gate = threading.Event()

    def held(handler: Any, body: dict[str, Any]) -> None:
        assert gate.wait(DEADLINE_S)
        documented(handler, body)

    def config(model: str) -> DaemonConfig:
        default = EmbeddingConfig()
        openai = replace(default.section("openai"), base_url=server.url, model=model, timeout_s=30.0)
        sections = {**default.sections, "openai": openai}
        return DaemonConfig(embedding=EmbeddingConfig("openai", (), sections=sections))

    with ProviderServer("openai") as server:
        for model in ("text-embedding-3-small", "text-embedding-3-large"):
            settings = config(model)
            handles = start(settings.embedding)
            async with opened(tmp_path / "s.db", handles, settings=index_settings(settings)) as space:
                if model.endswith("small"):
                    await fill(space, 10)
                    assert await space.wait_indexed(timeout_s=DEADLINE_S)
                    await measured(space)
                    server.whenever("note ", held)
                else:
                    await until(space, lambda status: len(status.generations) == 2)
                    for number in range(5):
                        result = await space.index.searcher.search(SearchQuery(f"pool number{number}"))
                        assert result.mode == "hybrid"
                        assert result.hits[0].path == f"memory/{number}.md"
                        assert asked_of(server, f"pool number{number}") == ["text-embedding-3-small"]
                    gate.set()
                    assert await space.wait_indexed(timeout_s=DEADLINE_S)
                    await measured(space)
                    result = await space.index.searcher.search(SearchQuery("pool number9"))
                    assert result.mode == "hybrid"
                    assert asked_of(server, "pool number9")[-1] == model
                    status = await until(space, lambda status: len(status.generations) == 1)
                    assert (status.model, status.warnings) == (model, [])
            for one in handles:
                one.close()


def test_a_question_goes_to_no_provider_that_is_not_used_any_more() -> None:
    """Whoever leaves a provider leaves it; and one that is configured as it was needs no second handle."""
    openai = Generation(1, "openai", "text-embedding-3-small", 1536, True)
    default = EmbeddingConfig()
    large = replace(default.section("openai"), model="text-embedding-3-large")
    assert former(default, openai) is None
    assert former(EmbeddingConfig("openai", ()), openai) is None
    assert former(EmbeddingConfig("local", (), sections={**default.sections, "openai": large}), openai) is None
    made = former(EmbeddingConfig("openai", (), sections={**default.sections, "openai": large}), openai)
    assert made is not None
    assert made.wait(DEADLINE_S)
    assert made.embedder is not None
    assert (made.embedder.id, made.embedder.model, made.embedder.dimensions) == (
        openai.provider,
        openai.model,
        openai.dimensions,
    )
    made.close()
