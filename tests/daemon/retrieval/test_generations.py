"""Changing models, outages, budgets: which generation answers, what is embedded, and what is said of it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import numpy as np
import pytest
from tests.support.daemon.loopback import machine, serving
from tests.support.deadline import DEADLINE_S
from tests.support.providers.generations import (
    DOWN,
    KEY,
    MarkedEmbedder,
    ask,
    fill,
    handle,
    model_of,
    models,
    opened,
    until,
)
from tests.support.providers.provider_server import KEY as KEY_OF_PROVIDER
from tests.support.providers.provider_server import ProviderServer, error

from confide_daemon.config import EmbeddingConfig
from confide_daemon.embedding import BatchLimits, LoadedModel
from confide_daemon.embedding.token_counts import count_tokens
from confide_daemon.errors import ProviderDownError, QuotaError
from confide_daemon.retrieval.indexing import indexer as index
from confide_daemon.retrieval.indexing.generations import GenerationPlan, Patience
from confide_daemon.retrieval.indexing.indexed_model import ModelStatus
from confide_daemon.retrieval.indexing.indexer import Indexer
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.server.mcp.tool_calls import definitions
from confide_daemon.spaces.models import IndexSettings, start
from confide_daemon.store.database import connect
from confide_daemon.store.migrations import migrations
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables import pieces

# ---------------------------------------------------------------- memory


async def test_a_large_fill_gives_its_memory_back_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When nothing is left to do, and not for a few chunks more."""
    given: list[int] = []
    monkeypatch.setattr(index, "LARGE_FILL", 40)
    async with opened(tmp_path / "s.db", [handle(models()[0])]) as space:
        monkeypatch.setattr(
            index, "heaps", SimpleNamespace(give_back=lambda: given.append(space.index.indexer.computed_pieces))
        )
        await fill(space, 60)
        await until(space, lambda _status: bool(given))
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        assert len(given) == 1
        await fill(space, 3, start=60)
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        await fill(space, 60, start=63)
        await until(space, lambda _status: len(given) > 1)
        assert given[1] - given[0] >= 40


# ---------------------------------------------------------------- change of models


async def test_searches_go_on_with_one_model_while_another_is_built_and_swapped(tmp_path: Path) -> None:
    """The old model stays configured behind the new one, so every search is hybrid, and each of one model."""
    old, new = models()
    async with opened(tmp_path / "s.db", [handle(old)]) as space:
        await fill(space, 60)
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
    async with opened(tmp_path / "s.db", [handle(new), handle(old)]) as space:
        seen = []
        built = asyncio.create_task(space.wait_indexed(timeout_s=DEADLINE_S))
        while not built.done():
            mode, model, _ = await ask(space, [old, new])
            assert mode == "hybrid"
            seen.append(model)
        assert built.result()
        assert seen[0] == "model-0"
        # One swap: never back and forth.
        assert seen == sorted(seen, key=lambda name: name or "")
        assert (await ask(space, [old, new]))[1] == "model-1"
    assert set(old.embedded.values()) == {1}
    assert set(new.embedded.values()) == {1}


async def test_many_searches_at_once_around_a_swap(tmp_path: Path) -> None:
    """Each is of one model; notes that are stored meanwhile are found."""
    old, new = models()
    async with opened(tmp_path / "s.db", [handle(old)]) as space:
        await fill(space, 30)
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
    new.open.clear()
    async with opened(tmp_path / "s.db", [handle(new), handle(old)]) as space:
        searches = [asyncio.create_task(ask(space, [old, new])) for _ in range(10)]
        new.open.set()
        for number in range(30, 60):
            await fill(space, 1, start=number)
            searches += [asyncio.create_task(ask(space, [old, new])) for _ in range(3)]
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        assert all(mode == "hybrid" for mode, _, _ in await asyncio.gather(*searches))
        result = await space.index.searcher.search(SearchQuery("number59 pool", min_score=0.0))
        assert result.hits[0].path == "memory/59.md"


async def test_a_change_that_is_taken_back_costs_nothing_twice(tmp_path: Path) -> None:
    """The half-built generation goes, its vectors stay in the cache for the next time."""
    old, new = models()
    async with opened(tmp_path / "s.db", [handle(old)]) as space:
        await fill(space, 40)
        assert await space.wait_indexed(timeout_s=DEADLINE_S)

    class Stopping(MarkedEmbedder):
        def embed_documents(self, texts: Sequence[str]) -> object:  # type: ignore[override]
            if self.calls >= 2:
                self.failure = DOWN
            return super().embed_documents(texts)

    stopping = Stopping("model-1", 1, provider="provider-1")
    async with opened(tmp_path / "s.db", [handle(stopping, pause_s=60)]) as space:
        status = await until(space, lambda status: bool(status.reembedding) and status.providers[0].state == "down")
        assert status.reembedding is not None
        assert 0 < status.reembedding[1] < 40
        assert [one.state for one in status.generations] == ["live", "building"]
    async with opened(tmp_path / "s.db", [handle(old)]) as space:
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        status = await until(space, lambda status: len(status.generations) == 1)
        assert (status.model, status.queued_pieces) == ("model-0", 0)
    async with opened(tmp_path / "s.db", [handle(new)]) as space:
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
    assert set(old.embedded.values()) == {1}
    assert set((stopping.embedded + new.embedded).values()) == {1}


async def test_all_vectors_computed_anew_come_from_the_model(tmp_path: Path) -> None:
    """Also for texts whose vectors are in the cache, while the old generation answers."""
    (model,) = models(1)
    async with opened(tmp_path / "s.db", [handle(model)]) as space:
        await fill(space, 10)
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        await space.documents.remove("p", "memory/3.md", base=1, author="a")
        await space.documents.put("p", "memory/3.md", "note number3 about the pool\n", base=2, author="a")
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        assert set(model.embedded.values()) == {1}
        await space.rebuild(reembed=True)
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        assert set(model.embedded.values()) == {2}
        await until(space, lambda status: len(status.generations) == 1)


async def test_a_renewal_that_begins_while_the_state_is_read_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The view of the database is from before the new generation, and the wish for it fulfilled by the time it is looked at."""
    (model,) = models(1)
    begun, looked = threading.Event(), threading.Event()
    reading, apply = Store.reading, Indexer._apply

    @contextmanager
    def slowly(store: Store) -> Iterator[None]:
        with reading(store):
            looked.set()
            assert begun.wait(DEADLINE_S)
            yield

    def late(indexer: Indexer, store: Store, standings: Sequence[ModelStatus]) -> GenerationPlan:
        if not indexer._renew:
            return apply(indexer, store, standings)
        assert looked.wait(DEADLINE_S)
        plan = apply(indexer, store, standings)
        begun.set()
        return plan

    async with opened(tmp_path / "s.db", [handle(model)]) as space:
        await fill(space, 10)
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        with monkeypatch.context() as held:
            held.setattr(Store, "reading", slowly)
            held.setattr(Indexer, "_apply", late)
            await space.rebuild(reembed=True)
            assert await space.wait_indexed(timeout_s=DEADLINE_S)
        assert set(model.embedded.values()) == {2}


async def test_calls_are_as_large_and_as_many_at_once_as_the_model_takes(tmp_path: Path) -> None:
    """What each brings is stored as it comes: one that fails takes nothing of the others with it."""

    class Counting(MarkedEmbedder):
        now = most = largest = 0

        def embed_documents(self, texts: Sequence[str]) -> object:  # type: ignore[override]
            with self._lock:
                self.now += 1
                self.most, self.largest = max(self.most, self.now), max(self.largest, len(texts))
            try:
                time.sleep(0.02)
                if any("number7 " in text for text in texts):
                    raise ProviderDownError("the connection was lost")
                return super().embed_documents(texts)
            finally:
                with self._lock:
                    self.now -= 1

    model = Counting("model-0", 0, limits=BatchLimits(texts=5, tokens=10_000, concurrency=4))
    async with opened(tmp_path / "s.db", [LoadedModel.none()]) as space:
        await fill(space, 60)
    async with opened(tmp_path / "s.db", [handle(model, pause_s=60)]) as space:
        status = await until(space, lambda status: status.providers[0].state == "down" and space.index.indexer.idle)
        assert status.queued_pieces == 60 - len(model.embedded)
    assert model.most == 4
    assert model.largest == 5
    assert set(model.embedded.values()) == {1}
    assert 15 <= len(model.embedded) <= 55


# ---------------------------------------------------------------- outages


async def test_the_next_model_takes_over_in_an_outage_and_gives_back(tmp_path: Path) -> None:
    """Each serves a generation of its own; after the outage only what is missing is embedded by the first."""
    first, second = models()
    async with opened(tmp_path / "s.db", [handle(first), handle(second)]) as space:
        await fill(space, 20)
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        assert (await ask(space, [first, second]))[1] == "model-0"
        assert second.calls == 0
        first.failure = DOWN
        await fill(space, 5, start=20)
        status = await until(space, lambda status: status.provider == "provider-1")
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        mode, model, warnings = await ask(space, [first, second])
        assert (mode, model) == ("hybrid", "model-1")
        status = await space.status(None)
        assert status.providers[0].state == "down"
        assert [one.state for one in status.generations] == ["standby", "live"]
        assert any("provider-1 serves meanwhile" in warning for warning in status.warnings)
        await fill(space, 5, start=25)
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        first.failure = None
        await until(space, lambda status: status.provider == "provider-0")
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        mode, model, warnings = await ask(space, [first, second])
        assert (mode, model, warnings) == ("hybrid", "model-0", [])
        assert (await space.status(None)).warnings == []
    assert len(first.embedded) == 30
    assert set(first.embedded.values()) == {1}
    assert set(second.embedded.values()) == {1}


async def test_flapping_embeds_nothing_twice(tmp_path: Path) -> None:
    """Whatever goes down and comes back how often: each text is embedded once by each model at most, and no search fails."""
    first, second = models()
    async with opened(tmp_path / "s.db", [handle(first, price=0.1), handle(second)]) as space:
        for turn in range(8):
            first.failure = DOWN if turn % 2 else None
            await fill(space, 4, start=turn * 4)
            for _ in range(3):
                mode, _, _ = await ask(space, [first, second])
                assert mode in ("hybrid", "keyword")
                await asyncio.sleep(0.03)
        first.failure = None
        await until(space, lambda status: status.provider == "provider-0" and status.queued_pieces == 0)
    assert len(first.embedded) == 32
    assert set(first.embedded.values()) == {1}
    assert set(second.embedded.values()) <= {1}


async def test_a_short_outage_builds_nothing(tmp_path: Path) -> None:
    """Searches go by keywords meanwhile and say so; what was stored is embedded afterwards."""
    first, second = models()
    patient = IndexSettings(patience=Patience(60.0, 900.0))
    async with opened(tmp_path / "s.db", [handle(first), handle(second)], settings=patient) as space:
        await fill(space, 10)
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        first.failure = DOWN
        await fill(space, 1, start=10)
        await until(space, lambda status: status.providers[0].state == "down")
        mode, _, warnings = await ask(space, [first, second])
        assert mode == "keyword"
        assert any("cannot reach the provider" in warning and "keywords" in warning for warning in warnings)
        assert not await space.wait_indexed(timeout_s=DEADLINE_S)
        first.failure = None
        assert (await until(space, lambda status: status.queued_pieces == 0)).provider == "provider-0"
    assert second.calls == 0


async def test_a_complete_generation_answers_at_once_when_the_live_one_cannot_be_asked(tmp_path: Path) -> None:
    """After a first outage the free model's is kept in step, so a second one is not even noticed as keyword searches."""
    first, second = models()
    path = tmp_path / "s.db"
    async with opened(path, [handle(first), handle(second)]) as space:
        await fill(space, 10)
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        first.failure = DOWN
        await fill(space, 1, start=10)
        await until(space, lambda status: status.provider == "provider-1")
        first.failure = None
        await until(space, lambda status: status.provider == "provider-0")
        await fill(space, 5, start=11)
        await until(space, lambda status: all(one.done == one.total for one in status.generations))
    patient = IndexSettings(patience=Patience(60.0, 900.0))
    async with opened(path, [handle(first), handle(second)], settings=patient) as space:
        assert (await ask(space, [first, second]))[1] == "model-0"
        first.failure = DOWN
        result = await space.index.searcher.search(
            SearchQuery("another question about the pool", min_score=0.0, max_results=50)
        )
        assert result.mode == "hybrid"
        assert model_of("another question about the pool", result, [first, second]) == "model-1"
        assert any("found with provider-1/model-1 meanwhile" in warning for warning in result.warnings)
        assert (await space.status(None)).provider == "provider-0"


async def test_a_model_that_hangs_from_the_start_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stores and searches answer while its calls hang; closing gives them up after a while."""
    monkeypatch.setattr(index, "CLOSE_S", 0.3)
    first, second = models()
    first.open.clear()
    started = time.monotonic()
    async with opened(tmp_path / "s.db", [handle(first), handle(second)]) as space:
        await fill(space, 10)
        mode, _, _ = await ask(space, [first, second])
        assert mode == "keyword"
        assert not await space.wait_indexed(timeout_s=0.5)
    assert time.monotonic() - started < 30
    first.open.set()


# ---------------------------------------------------------------- refusals and budgets


async def test_a_refusal_is_not_tried_again_and_the_next_model_takes_over(tmp_path: Path) -> None:
    """A quota that is used up or a key that is refused: one call, however long and however often one searches."""
    first, second = models()
    first.failure = QuotaError("the provider refuses the key", hint="set another key")
    async with opened(tmp_path / "s.db", [handle(first), handle(second)], settings=IndexSettings()) as space:
        await fill(space, 10)
        await until(space, lambda status: status.provider == "provider-1" and status.queued_pieces == 0)
        for _ in range(5):
            assert (await ask(space, [first, second]))[:2] == ("hybrid", "model-1")
        status = await space.status(None)
        assert status.providers[0].state == "refused"
        assert any("refuses the key" in warning for warning in status.warnings)
        assert first.calls == 1
        first.failure = None
        await space.rebuild(reembed=False)
        await until(space, lambda status: status.provider == "provider-0" and status.queued_pieces == 0)


async def test_a_budget_stops_before_the_bill_and_goes_on_next_month(tmp_path: Path) -> None:
    """What is counted is never more than the budget; the next model serves; in the next month the first goes on where it was."""
    now = [datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()]
    first, second = models(limits=BatchLimits(texts=4, tokens=100, concurrency=2))
    handles = [handle(first, price=0.5, monthly_tokens=200), handle(second)]
    path = tmp_path / "s.db"
    async with opened(path, handles, clock=lambda: now[0]) as space:
        await fill(space, 60)
        status = await until(space, lambda status: status.provider == "provider-1" and status.queued_pieces == 0)
        wanted = status.providers[0]
        assert wanted.state == "refused"
        assert wanted.tokens is not None
        assert 100 < wanted.tokens <= 200
        assert wanted.monthly_tokens == 200
        assert wanted.cost_usd == pytest.approx(wanted.tokens * 0.5 / 1e6)
        assert any("budget of 200 tokens" in warning for warning in status.warnings)
        assert (await ask(space, [first, second]))[:2] == ("hybrid", "model-1")
        embedded, calls = len(first.embedded), first.calls
        assert 0 < embedded < 60
    # Counted on disk: a restart does not begin anew.
    async with opened(path, handles, clock=lambda: now[0]) as space:
        await fill(space, 2, start=60)
        status = await until(space, lambda status: status.provider == "provider-1" and status.queued_pieces == 0)
        assert status.providers[0].tokens == wanted.tokens
        assert first.calls == calls
        now[0] += 86_400
        await fill(space, 1, start=62)
        status = await until(space, lambda status: status.provider == "provider-0" and status.queued_pieces == 0)
        assert status.providers[0].tokens is not None
        assert 100 < status.providers[0].tokens <= 200
        assert len(first.embedded) == 63
    assert set(first.embedded.values()) == {1}


async def test_questions_are_counted_and_kept_within_the_budget_too(tmp_path: Path) -> None:
    """A question that is asked again is not; what a failed call was counted for is given back."""
    (model,) = models(1)
    handles = [handle(model, price=1.0, monthly_tokens=100)]
    async with opened(tmp_path / "s.db", handles) as space:
        await fill(space, 3)
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        before = (await space.status(None)).providers[0].tokens
        assert before is not None
        await space.index.searcher.search(SearchQuery("one two three"))
        await space.index.searcher.search(SearchQuery("one two three"))
        assert (await space.status(None)).providers[0].tokens == before + 3
        model.failure = DOWN
        await space.index.searcher.search(SearchQuery("four five"))
        model.failure = None
        assert (await space.status(None)).providers[0].tokens == before + 3
        await until(space, lambda status: status.providers[0].retry_in_s in (None, 0.0))
        for number in range(40):
            result = await space.index.searcher.search(SearchQuery(f"number{number} pool {number}"))
        assert result.mode == "keyword"
        assert any("budget of 100 tokens" in warning for warning in result.warnings)
        tokens = (await space.status(None)).providers[0].tokens
        assert tokens is not None
        assert 80 < tokens <= 100
    async with opened(tmp_path / "s.db", handles) as space:
        assert (await space.status(None)).providers[0].tokens == tokens


async def test_a_quota_over_a_real_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the configuration to the ranking: OpenAI's answer 429 insufficient_quota is asked for once, the next model serves, and when
    somebody has acted the first goes on with what it has."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY_OF_PROVIDER)
    with ProviderServer("openai") as server:
        default = EmbeddingConfig()
        openai = replace(default.section("openai"), base_url=server.url, timeout_s=10.0)
        config = EmbeddingConfig("openai", ("hashed",), sections={**default.sections, "openai": openai})
        handles = start(config)
        async with opened(tmp_path / "s.db", handles) as space:
            await fill(space, 20)
            assert await space.wait_indexed(timeout_s=DEADLINE_S)
            status = await space.status(None)
            assert (status.provider, status.providers[0].state) == ("openai", "ready")
            assert status.providers[0].tokens == sum(
                count_tokens(text) for body in server.asked for text in body["input"]
            )
            server.always(error(429, "insufficient_quota"))
            await fill(space, 5, start=20)
            await until(space, lambda status: status.provider == "hashed" and status.queued_pieces == 0)
            asked = len(server.asked)
            for number in range(5):
                result = await space.index.searcher.search(SearchQuery(f"pool number{number}"))
                assert result.mode == "hybrid"
                assert result.hits[0].path == f"memory/{number}.md"
            assert len(server.asked) == asked
            server.always(None)
            await space.rebuild(reembed=False)
            await until(space, lambda status: status.provider == "openai" and status.queued_pieces == 0)
            embedded = Counter(
                text for body in server.asked[: asked - 1] + server.asked[asked:] for text in body["input"]
            )
            assert all(embedded[f"note number{number} about the pool"] == 1 for number in range(25))
        for one in handles:
            one.close()


async def test_what_an_agent_reads_of_models_and_what_they_cost(tmp_path: Path) -> None:
    """`memory_status` and `memory_search` while the wanted model is down: structured, within the schema, and in few lines of text."""
    first, second = models()
    handles = [handle(first, price=100.0, monthly_tokens=1000, pause_s=60), handle(second)]
    async with serving(tmp_path / "data", embedder=handles) as daemon, machine(daemon) as laptop:
        await laptop.attach("proj", "global")
        async with laptop.mcp() as client:
            await client.call_tool("memory_store", {"content": "the pool was empty"})
            await client.call_tool("memory_sync", {})
            first.failure = DOWN
            found = await client.call_tool("memory_search", {"query": "was the pool empty"})
            status = await client.call_tool("memory_status", {})
    for result, name in ((found, "memory_search"), (status, "memory_status")):
        schema = next(one.output for one in definitions(["core"]) if one.name == name)
        jsonschema.validate(result.structured_content, schema)
    assert found.structured_content["searchMode"] == "keyword"
    assert any("cannot reach the provider" in warning for warning in found.structured_content["warnings"])
    told = status.structured_content
    wanted, spare = told["providers"]
    assert (wanted["name"], wanted["state"], wanted["monthlyTokens"]) == ("provider-0", "down", 1000)
    assert 0 < wanted["tokensThisMonth"] < 20
    assert wanted["costThisMonth"] == pytest.approx(wanted["tokensThisMonth"] * 100 / 1e6)
    assert wanted["retryIn"] > 10
    assert (spare["state"], spare["tokensThisMonth"], spare["costThisMonth"]) == ("ready", None, None)
    assert [(one["provider"], one["state"], one["done"], one["total"]) for one in told["generations"]] == [
        ("provider-0", "live", 1, 1)
    ]
    text = status.content[0].text
    assert f"provider-0 (down): {wanted['tokensThisMonth']} of 1,000 tokens this month, $0.00" in text
    assert len(text.splitlines()) < 10


async def test_no_write_waits_for_a_provider_and_none_of_its_vectors_is_lost_when_its_generation_goes(
    tmp_path: Path,
) -> None:
    """The generation is dropped while a call is under way: what comes back is kept for the next time."""
    (model,) = models(1)
    async with opened(tmp_path / "s.db", [handle(model)]) as space:
        await fill(space, 4)
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        model.open.clear()
        await space.rebuild(reembed=True)
        await until(space, lambda status: bool(status.reembedding) and model.calls >= 2)

        def drop(store: Store) -> None:
            with store.writing():
                for one in store.vectors.generations():
                    if not one.live:
                        store.vectors.drop(one.id, now=time.time())

        await space.threads.write(drop)
        model.open.set()
        await until(space, lambda status: space.index.indexer.idle)
        kept = await space.threads.read(
            lambda store: store.vectors.known_vectors(store.vectors.generations()[0], _hashes(store))
        )
        assert len(kept) == 4
    assert set(model.embedded.values()) == {2}


def _hashes(store: Store) -> list[bytes]:
    from confide_daemon.store.tables.pieces import piece_hash

    return [piece_hash(row.text) for row in store.pieces.hits(list(range(1, 9))).values()]


def test_a_database_of_before_keeps_its_cache(tmp_path: Path) -> None:
    """Its table is laid out anew, its vectors are not paid for again."""
    model = MarkedEmbedder("model-0", 0)
    vector = model.embed_documents(["kept"])[0]
    database = connect(tmp_path / "s.db", KEY, writer=True)
    database.execute("CREATE TABLE migration (version INTEGER PRIMARY KEY, applied_at REAL NOT NULL)")
    for version, sql in migrations()[:4]:
        database.execute(sql)
        database.execute("INSERT INTO migration VALUES (?, 0)", (version,))
    row = (f"marked/model-0/{model.dimensions}", b"digest", vector.tobytes(), time.time())
    database.execute("INSERT INTO vector_cache (model, hash, vector, kept_at) VALUES (?, ?, ?, ?)", row)
    database.close()
    store = Store.open(tmp_path / "s.db", KEY, writer=True, now=time.time())
    with store.writing():
        generation = store.vectors.add_generation("marked", "model-0", model.dimensions, live=True, now=time.time())
    np.testing.assert_array_equal(store.vectors.known_vectors(generation, [b"digest"])[b"digest"], vector)
    store.close()


# ---------------------------------------------------------------- what goes and comes back


async def test_a_folder_that_is_deleted_and_comes_back_is_not_embedded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rm -rf memory`, then `git checkout`: no text is paid for twice. Nor is a move or a copy."""
    monkeypatch.setattr(pieces, "CACHED_VECTORS", 5)
    monkeypatch.setattr(pieces, "COUNTED_AFTER", 1)
    (model,) = models(1)
    async with opened(tmp_path / "s.db", [handle(model)]) as space:
        await fill(space, 40)
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        for number in range(40):
            await space.documents.remove("p", f"memory/{number}.md", base=1, author="a")
        for number in range(40):  # by a machine that knows of the deletion
            text = f"note number{number} about the pool\n"
            await space.documents.put("p", f"memory/{number}.md", text, base=2, author="a")
        for folder in ("moved", "copied"):
            for number in range(5):
                text = f"note number{number} about the pool\n"
                await space.documents.put("p", f"memory/{folder}/{number}.md", text, base=0, author="a")
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        assert (await space.status(None)).queued_pieces == 0
    assert len(model.embedded) == 40
    assert set(model.embedded.values()) == {1}


async def test_vectors_of_what_was_deleted_are_bounded_in_size_and_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest that fit stay; after a week no more than the space has pieces; after ninety days none."""
    (model,) = models(1)
    monkeypatch.setattr(pieces, "CACHED_VECTORS", 5)
    monkeypatch.setattr(pieces, "COUNTED_AFTER", 1)
    monkeypatch.setattr(pieces, "RECENT_BYTES", 20 * model.dimensions * 4)
    now = [time.time()]
    async with opened(tmp_path / "s.db", [handle(model)], clock=lambda: now[0]) as space:
        await fill(space, 30)
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        for number in range(30):
            await space.documents.remove("p", f"memory/{number}.md", base=1, author="a")
        held = []
        for days in (0, 8, 91):
            now[0] = time.time() + days * 86_400
            await space.history.sweep()
            held.append(await space.threads.read(_cached))
    assert held == [20, 5, 0]


def _cached(store: Store) -> int:
    return int(store.vectors._rows("SELECT count(*) FROM vector_cache")[0][0])
