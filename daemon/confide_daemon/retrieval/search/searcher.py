"""Searches one space: embeds the query, then chooses the vectors, ranks and explains within one
snapshot of the database.

The query is embedded before the snapshot is opened, because embedding may take a second. Within the
snapshot, the searcher checks that the model still serves. A ranking uses one generation (one
model's set of vectors): the live one or, if its model is unavailable, another complete one. Chunks
without a vector are found by their words.

A query that is not English uses the generation of the multilingual model, if there is one. An
English query uses it for chunks that are not English.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache

from confide_crypto.errors import ConfideError
from confide_daemon import figures
from confide_daemon.embedding import LoadedModel, Vectors
from confide_daemon.embedding.embedder import is_blank
from confide_daemon.embedding.reranker import Reranker
from confide_daemon.errors import DamagedError, EmbedderError, StorageError
from confide_daemon.retrieval.indexing.generations import (
    ALONE,
    GenerationGap,
    holdings,
    live_generation,
    loading,
    servers,
)
from confide_daemon.retrieval.indexing.indexed_model import BudgetedModel
from confide_daemon.retrieval.indexing.indexer import Indexer
from confide_daemon.retrieval.search import engine as search
from confide_daemon.retrieval.search.engine import Aside, SearchResult
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.retrieval.search.ranking import Weights
from confide_daemon.retrieval.search.results_of_parts import joined_result
from confide_daemon.retrieval.search.scoring import ScoreCalibration, Yardsticks, stem_line
from confide_daemon.store.database import Damage
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.pieces import Generation
from confide_daemon.store.threads import StoreThreads
from confide_memory.tools.foreign import is_foreign
from confide_memory.tools.question import keyword_query
from confide_memory.tools.several import parts_of

log = logging.getLogger(__name__)
LATENCIES_KEPT = 512
# Stemmed lines that the cache keeps, since searches return to the same chunks: 4 MB with chunks of
# the usual size. With hundreds of open spaces this would be a gigabyte, so each space then gets
# less. Stemming a line takes 5 us, and a search looks at some 200.
LINES_KEPT, FEWEST_LINES = 8192, 256
# A query is embedded again if another model serves by the time of the search; one search allows
# this many tries.
QUESTION_TRIES = 3
# Token counts of queries are saved this long after the first of them; a crash loses the counts
# since then.
COUNTED_AFTER_S = 5.0
STAGES_SHOWN = frozenset({"embed", "keyword", "vector", "rerank", "total"})
# Queries that wait for a slow provider at once; each waits at most for its model's deadline.
THREADS = 4
# Time to wait for a free thread on top of the model's own deadline, whose error says more than
# ours.
FREE_S = 0.25
# A first question that is not English waits this long for the multilingual vectors of a space with
# at most ASIDE_PIECES chunks, which take half a second when the model is loaded.
ASIDE_S, ASIDE_PIECES = 1.5, 500


@dataclass(frozen=True, slots=True)
class QueryVector:
    """The vector of a query, or the reasons why no model returned one."""

    name: str | None = None  # of the model (provider/model/dimensions)
    vector: Vectors | None = None
    tried_models: frozenset[str] = frozenset()  # all models that were called
    failures: tuple[str, ...] = ()  # why earlier models, or all, returned none
    embed_ms: float = 0.0
    aside: Vectors | None = None  # by the model aside, besides `vector`
    is_aside: bool = False  # `vector` is by the model aside


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The generation (one model's set of vectors) and the query vector that a search uses; both are
    None if it uses keywords only.

    Attributes:
        is_stale: True if another model serves now, so that the query must be embedded again.
        live: the live generation, even if the search uses another one.
        aside: the generation of the multilingual model, for chunks that the other model does not
            understand; None without one.
    """

    generation: Generation | None = None
    vector: Vectors | None = None
    warnings: list[str] = field(default_factory=list)
    age_s: float = 0.0
    is_stale: bool = False
    live: Generation | None = None
    aside: Generation | None = None


class Serving:
    """Chooses the embedding model, and its set of vectors, that answer the queries of one space."""

    def __init__(self, providers: Sequence[BudgetedModel], indexer: Indexer) -> None:
        """Wakes `indexer` when a model that was called turns out to be down, or available again."""
        self._providers = providers
        self._indexer = indexer
        self._order: tuple[tuple[str, int], ...] = ()
        self._gap: GenerationGap | None = None  # of the generation of the model aside
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="confide-ask")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def look(self, store: Store) -> None:
        """Read from the store which generations (sets of vectors) can answer searches now, and
        remember that.
        """
        models = [provider.standing() for provider in self._providers]
        held = holdings(store)
        self._order = tuple((generation.name, place) for generation, place in servers(held, models))
        aside = self._indexer.aside
        name = None if aside is None else aside.name
        self._gap = next((one for one in held if one.generation.name == name), None)

    @property
    def aside_missing(self) -> int | None:
        """The number of chunks that had no vector by the multilingual model when last checked. None
        if the space has no vectors by that model.
        """
        return None if self._gap is None else self._gap.missing

    async def ask(self, text: str) -> QueryVector:
        """Embed a query with the first available model whose vectors can answer searches. If the
        query is not English, use the multilingual model if its vectors exist.
        """
        tried: list[str] = []
        failures: list[str] = []
        started = time.perf_counter()
        other = self._indexer.aside if self._gap is not None else None
        aside = None if other is None else await self._vector(other, text, failures)
        if aside is not None and is_foreign(text) and other is not None:
            elapsed = (time.perf_counter() - started) * 1e3
            return QueryVector(other.name, aside, frozenset(), tuple(failures), elapsed, is_aside=True)
        for name, place in self._order:
            tried.append(name)
            vector = await self._vector(self._providers[place], text, failures)
            if vector is not None:
                elapsed = (time.perf_counter() - started) * 1e3
                return QueryVector(name, vector, frozenset(tried), tuple(failures), elapsed, aside)
        return QueryVector(tried_models=frozenset(tried), failures=tuple(failures))

    async def _vector(self, provider: BudgetedModel, text: str, failures: list[str]) -> Vectors | None:
        """Return a model's vector of a query, or None within its deadline; appends why to `failures`."""
        before = provider.standing().condition
        vector = None
        try:
            if provider.model.remembers(text):
                vector = provider.query_vector(text)
            else:
                asking = asyncio.get_running_loop().run_in_executor(self._threads, provider.query_vector, text)
                async with asyncio.timeout(provider.model.query_deadline_s + FREE_S):
                    vector = await asking
        except EmbedderError as error:
            failures.append(str(error))
        except TimeoutError:
            failures.append(f"{provider.model.label} is still busy with other questions")
        if provider.standing().condition is not before:
            self._indexer.wake()
        return vector

    def choose(self, store: Store, asked: QueryVector, *, now: float) -> ModelChoice:
        """Choose the generation and the query vector to search with. Call within the snapshot that
        the search uses.
        """
        generations = store.vectors.generations()
        live = next((one for one in generations if one.live), None)
        if asked.is_aside:
            return self._choose_aside(store, asked, live)
        used = next((one for one in generations if one.name == asked.name and one.live), None)
        if used is None:
            self.look(store)
            if any(name not in asked.tried_models for name, _ in self._order):
                return ModelChoice(is_stale=True, live=live)
        if used is None and asked.name is not None:
            whole = [one for one in generations if one.name == asked.name and store.vectors.waiting_count(one.id) == 0]
            used = whole[-1] if whole else None
        missing, age = _waiting(store, live, now)
        if used is None:
            return ModelChoice(warnings=[f"{self._why_not(asked)}; {ALONE}"], age_s=age, live=live)
        warnings = _about(used, asked, missing)
        if asked.vector is not None and is_blank(asked.vector):
            return ModelChoice(
                warnings=[f"the embedding model does not know these letters; {ALONE}"], age_s=age, live=live
            )
        gap = self._gap if asked.aside is not None and not is_blank(asked.aside) else None
        aside = None if gap is None else next((one for one in generations if one.id == gap.generation.id), None)
        return ModelChoice(used, asked.vector, warnings, age, live=live, aside=aside)

    def _choose_aside(self, store: Store, asked: QueryVector, live: Generation | None) -> ModelChoice:
        """Choose the generation of the model aside for a question that is not English."""
        used = next((one for one in reversed(store.vectors.generations()) if one.name == asked.name), None)
        if used is None or asked.vector is None or is_blank(asked.vector):
            return ModelChoice(warnings=[f"the embedding model does not know these letters; {ALONE}"], live=live)
        missing = store.vectors.waiting_count(used.id)
        return ModelChoice(used, asked.vector, _missing_vectors_warning(missing), live=live)

    def _why_not(self, asked: QueryVector) -> str:
        if asked.failures:
            return asked.failures[0]
        wanted = self._providers[0]
        if wanted.model.state == "loading" or wanted.model.is_resting:
            return loading(wanted)
        if wanted.model.embedder is None and wanted.model.failure is not None:
            return str(wanted.model.failure)
        return "the index is being built with the embedding model"


def _about(used: Generation, asked: QueryVector, missing: int) -> list[str]:
    """Return the warnings about a search with this generation."""
    if not used.live:
        return [f"{'; '.join(asked.failures)}; found with {used.provider}/{used.model} meanwhile"]
    return _missing_vectors_warning(missing)


def _missing_vectors_warning(missing: int) -> list[str]:
    if missing == 1:
        return ["1 piece is not embedded yet; it is found by keywords alone"]
    return [f"{missing:,} pieces are not embedded yet; they are found by keywords alone"] if missing else []


def _waiting(store: Store, live: Generation | None, now: float) -> tuple[int, float]:
    """Return the number of chunks without a vector of a generation, and the age of the oldest in
    seconds.
    """
    missing = store.vectors.waiting_count(live.id) if live is not None else 0
    if live is None or not missing:
        return 0, 0.0
    return missing, max(0.0, now - (store.vectors.oldest_waiting(live.id) or now))


class Searcher:
    """Runs the searches of one space, until `close` is called."""

    def __init__(
        self,
        threads: StoreThreads,
        indexer: Indexer,
        damage: Damage,
        *,
        weights: Weights,
        reranker: Reranker | None,
        former: Callable[[Generation], LoadedModel | None] | None,
    ) -> None:
        """`damage` records the tables that the space's connections cannot read; `former`: see
        `IndexSettings`.
        """
        self._threads = threads
        self._budget = indexer.budget
        self._indexer = indexer
        self._damage = damage
        self._weights = weights
        self._reranker = reranker
        self._former_of = former
        self._providers = list(indexer.providers)
        self._serving = Serving(self._providers, indexer)
        self._yardsticks = Yardsticks(self._providers, threads)
        self._former: LoadedModel | None = None
        self._counting: asyncio.Task[None] | None = None
        self._warm_generation: int | None = None  # the generation in memory
        self._warming: asyncio.Task[None] | None = None
        self._closing = False
        self._stem_line = lru_cache(self._most_lines)(stem_line)
        self._latencies_ms: deque[float] = deque(maxlen=LATENCIES_KEPT)

    async def open(self) -> None:
        """Determine which vectors can answer searches, and start to load the live ones into memory
        in the background. Raises StorageError if the database cannot be read.
        """
        live = await self._threads.read(live_generation)
        if live is not None and self._former_of is not None:
            self._former = self._former_of(live)
        if self._former is not None:
            self._providers.append(BudgetedModel(self._former, self._budget))
        await self._threads.read(self._serving.look)
        self.warm(live)

    async def close(self) -> None:
        """Stop the background tasks, and save the counts of the queries' tokens."""
        self._closing = True
        self._serving.close()
        if self._former is not None:
            await asyncio.to_thread(self._former.close)
        await self._yardsticks.close()
        if self._counting is not None:
            self._counting.cancel()
            await asyncio.wait([self._counting])
        await self._count()
        if self._warming is not None:
            await asyncio.wait([self._warming])

    def latencies(self) -> tuple[float | None, float | None]:
        """Return the median and the 95th percentile of the durations of recent searches, in
        milliseconds. Both are None before the first search.
        """
        ordered = sorted(self._latencies_ms)
        return _percentile(ordered, 0.50), _percentile(ordered, 0.95)

    def forget(self) -> None:
        """Mark the vectors in memory as outdated, so that they are loaded again after the next
        search.
        """
        self._warm_generation = None

    @property
    def _most_lines(self) -> int:
        return max(FEWEST_LINES, int(LINES_KEPT * self._threads.share))

    def forget_texts(self) -> None:
        """Remove all cached texts and queries from memory."""
        self._stem_line.cache_clear()
        for provider in self._providers:
            provider.model.forget_questions()

    async def search(self, query: SearchQuery) -> SearchResult:
        """Search for the query. If it asks for several things, search for each and join the
        results. Raises StorageError if the database cannot be read.
        """
        parts = parts_of(query.text) if not query.keywords and not query.is_unasked else [query.text]
        if len(parts) == 1:
            return await self._search_once(query)
        each_tokens = None if query.max_tokens is None else query.max_tokens // len(parts)
        each = [replace(query, text=part, max_tokens=each_tokens) for part in parts]
        return joined_result(query, parts, await asyncio.gather(*map(self._search_once, each)))

    async def _search_once(self, query: SearchQuery) -> SearchResult:
        if self._closing:
            raise StorageError("the space is closed")
        started = time.perf_counter()
        if self._indexer.aside is not None and is_foreign(query.text):
            await self._ready_aside()
        result, live = None, None
        for attempt in range(QUESTION_TRIES):
            asked = await self._serving.ask(query.text)
            await self._yardsticks.prepare(asked.name)
            is_last = attempt == QUESTION_TRIES - 1
            result, live = await self._threads.read(
                lambda store: self._damage.around(lambda: self._search(store, query, asked, is_last))  # noqa: B023
            )
            if result is not None:
                break
        assert result is not None
        if not self._budget.is_written and self._counting is None:
            self._counting = asyncio.create_task(self._count_later(), name="confide-count")
        self.warm(live)
        total = (time.perf_counter() - started) * 1e3
        self._latencies_ms.append(total)
        result.timings["total"] = total
        note_stages(result.timings)
        return result

    async def _ready_aside(self) -> None:
        """Have the vectors of the model aside made, and wait for them for a moment if they are few."""
        self._indexer.want_aside()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ASIDE_S
        while self._serving.aside_missing != 0:
            pieces = await self._threads.read(self._look_aside)
            left = deadline - loop.time()
            if self._serving.aside_missing == 0 or pieces > ASIDE_PIECES or left <= 0:
                return
            await self._indexer.wait_move(left)

    def _look_aside(self, store: Store) -> int:
        with store.reading():
            self._serving.look(store)
            return self._serving.aside_missing or store.pieces.count()

    def _search(
        self, store: Store, query: SearchQuery, asked: QueryVector, is_last: bool
    ) -> tuple[SearchResult | None, Generation | None]:
        """Search once. Returns no result if another model serves now and the query must be embedded
        again; `is_last`: search by keywords instead.
        """
        kept, may_keep = self._stem_line.cache_parameters()["maxsize"], self._most_lines
        # The share changes all the time: do not drop the cache for a small change of its size.
        if may_keep < kept or may_keep >= 4 * kept:
            self._stem_line = lru_cache(may_keep)(stem_line)
        now = time.time()
        timings: dict[str, float] = {} if asked.vector is None else {"embed": asked.embed_ms}
        # One snapshot for all that follows: a generation that becomes live meanwhile must not be
        # read with the ids of the one before.
        with store.reading():
            choice = self._serving.choose(store, asked, now=now)
            if choice.is_stale and not is_last:
                return None, None
            if choice.is_stale:
                said = "the embedding model is being changed; found by keywords alone"
                choice = ModelChoice(warnings=[said], live=choice.live)
            if choice.vector is not None and not keyword_query(query.text):
                # The vector of "?" is near to that of any short text.
                choice = ModelChoice(
                    warnings=[f"the query has no words; {ALONE}"], age_s=choice.age_s, live=choice.live
                )
            elif choice.vector is not None and self._yardsticks.is_missing(asked.name):
                said = f"what the cosines of {asked.name} mean is being measured; {ALONE}"
                choice = ModelChoice(warnings=[said], age_s=choice.age_s, live=choice.live)
            found = search.run(
                store,
                query,
                generation=choice.generation,
                vector=choice.vector,
                weights=self._weights,
                now=now,
                timings=timings,
                yardstick=self._yardsticks.of(asked.name),
                aside=self._aside(choice, asked),
                reranker=self._reranker,
                stemmed=self._stem_line,
            )
        warnings = [*choice.warnings, *self._damage.warnings(), *found.warnings]
        indexer = self._indexer
        if indexer.failure is not None or indexer.waits_for_room or indexer.uncuttable:
            warnings += indexer.warnings()
        mode = "keyword" if choice.vector is None else "hybrid"
        return SearchResult(found.hits, mode, warnings, choice.age_s, timings, found.explanation), choice.live

    def _aside(self, choice: ModelChoice, asked: QueryVector) -> Aside | None:
        """Return how chunks that are not English are found by an English question."""
        if choice.aside is None or asked.aside is None:
            return None
        yardstick = self._yardsticks.of(choice.aside.name) or ScoreCalibration()
        return Aside(choice.aside, asked.aside, yardstick.scale)

    async def _count_later(self) -> None:
        await asyncio.sleep(COUNTED_AFTER_S)
        await self._count()
        self._counting = None

    async def _count(self) -> None:
        try:
            await self._threads.write(self._budget.flush)
        except ConfideError as error:
            log.warning("tokens could not be counted: %s", type(error).__name__)

    def warm(self, live: Generation | None) -> None:
        """Load the vectors of a generation that became live into memory, in the background. Until
        then searches read them from the database, which is slower.
        """
        if live is None or live.id == self._warm_generation or (self._warming is not None and not self._warming.done()):
            return
        self._warm_generation = live.id
        self._warming = asyncio.create_task(self._warm_up(live.id), name="confide-warm")

    async def _warm_up(self, generation: int) -> None:
        # In steps, so that searches get their turns in the same threads.
        try:
            while not self._closing and await self._threads.read(lambda store: store.vectors.warm(generation)):
                pass
        except DamagedError:
            self._warm_generation = None  # the upkeep repairs the vectors first
        except ConfideError as error:
            log.warning("the vectors could not be brought into memory: %s", type(error).__name__)
            self._warm_generation = None


def _percentile(ordered: list[float], share: float) -> float | None:
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 1) if ordered else None


def note_stages(timings_ms: dict[str, float]) -> None:
    """Record the duration of each step of a search in the metrics. Steps without a time series of
    their own are added up as `rest`.
    """
    rest = timings_ms["total"]
    for stage in STAGES_SHOWN & timings_ms.keys():
        figures.SEARCH_STAGE.labels(stage).observe(timings_ms[stage] / 1e3)
        if stage != "total":
            rest -= timings_ms[stage]
    figures.SEARCH_STAGE.labels("rest").observe(max(0.0, rest) / 1e3)
