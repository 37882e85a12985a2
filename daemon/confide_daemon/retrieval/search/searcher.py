"""Searches one space: the question's vector, one view of the database, the ranking in it, and what is said about both.

A question is embedded before the view of the database is opened, since that may take a second; whether its model still serves is looked
at in the view. A ranking is of one generation whole: the live one, or, when its model cannot be asked now, another that lacks nothing.
What has no vector is found by its words.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache

from confide_crypto.errors import ConfideError
from confide_daemon import figures
from confide_daemon.embedding import LoadedModel, Vectors
from confide_daemon.embedding.embedder import is_blank
from confide_daemon.embedding.reranker import Reranker
from confide_daemon.errors import DamagedError, EmbedderError, StorageError
from confide_daemon.retrieval.indexing.generations import ALONE, holdings, live_generation, loading, servers
from confide_daemon.retrieval.indexing.indexed_model import BudgetedModel
from confide_daemon.retrieval.indexing.indexer import Indexer
from confide_daemon.retrieval.search import engine as search
from confide_daemon.retrieval.search.engine import SearchResult
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.retrieval.search.ranking import Weights
from confide_daemon.retrieval.search.scoring import Yardsticks, stem_line
from confide_daemon.store.database import Damage
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.pieces import Generation
from confide_daemon.store.threads import StoreThreads

log = logging.getLogger(__name__)
LATENCIES_KEPT = 512
# Of the pieces that searches look at closely, which come again and again: 4 MB with the usual small pieces, less where many spaces are
# open, since hundreds of them would come to a gigabyte. To stem one takes 5 us, and a search looks at some 200.
LINES_KEPT, FEWEST_LINES = 8192, 256
# A question is embedded again when another model serves by the time it could be searched; more swaps in one search there are not.
QUESTION_TRIES = 3
# Tokens of questions are written down this long after the first of them: a crash may forget so much of them.
COUNTED_AFTER_S = 5.0
STAGES_SHOWN = frozenset({"embed", "keyword", "vector", "rerank", "total"})
# Questions that wait for a slow provider at once; each waits for its model's deadline at most.
THREADS = 4
# Until one of the threads is free, beside the model's own deadline: its error says more.
FREE_S = 0.25


@dataclass(frozen=True, slots=True)
class QueryVector:
    """A question's vector, or the reasons why there is none."""

    name: str | None = None  # of the model it is from (provider/model/dimensions)
    vector: Vectors | None = None
    tried: frozenset[str] = frozenset()  # all that were asked
    failures: tuple[str, ...] = ()  # why those before it, or all, gave none
    embed_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Choice:
    """What a search uses: a generation and a vector of its model, or neither. `is_stale`: ask again, another one serves now.

    `live`: the generation that is swapped in, whether it is used or not.
    """

    generation: Generation | None = None
    vector: Vectors | None = None
    warnings: list[str] = field(default_factory=list)
    age_s: float = 0.0
    is_stale: bool = False
    live: Generation | None = None


class Serving:
    """For one space."""

    def __init__(self, providers: Sequence[BudgetedModel], indexer: Indexer) -> None:
        """`indexer`: woken when a model that was asked turns out to be down, or back."""
        self._providers = providers
        self._indexer = indexer
        self._order: tuple[tuple[str, int], ...] = ()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="confide-ask")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def look(self, store: Store) -> None:
        """Notes which generations can serve now."""
        models = [provider.standing() for provider in self._providers]
        self._order = tuple((generation.name, place) for generation, place in servers(holdings(store), models))

    async def ask(self, text: str) -> QueryVector:
        """The question's vector of the first model that can give it, among those whose generation can serve."""
        tried: list[str] = []
        failures: list[str] = []
        started = time.perf_counter()
        for name, place in self._order:
            provider = self._providers[place]
            tried.append(name)
            before = provider.standing().condition
            try:
                if provider.model.remembers(text):
                    vector = provider.query_vector(text)
                else:
                    asking = asyncio.get_running_loop().run_in_executor(self._threads, provider.query_vector, text)
                    async with asyncio.timeout(provider.model.query_deadline_s + FREE_S):
                        vector = await asking
            except EmbedderError as error:
                failures.append(str(error))
                vector = None
            except TimeoutError:
                failures.append(f"{provider.model.label} is still busy with other questions")
                vector = None
            if provider.standing().condition is not before:
                self._indexer.wake()
            if vector is not None:
                elapsed = (time.perf_counter() - started) * 1e3
                return QueryVector(name, vector, frozenset(tried), tuple(failures), elapsed)
        return QueryVector(tried=frozenset(tried), failures=tuple(failures))

    def choose(self, store: Store, asked: QueryVector, *, now: float) -> Choice:
        """What to search with; in the view of the store that the search is made in."""
        generations = store.vectors.generations()
        live = next((one for one in generations if one.live), None)
        used = next((one for one in generations if one.name == asked.name and one.live), None)
        if used is None:
            self.look(store)
            if any(name not in asked.tried for name, _ in self._order):
                return Choice(is_stale=True, live=live)
        if used is None and asked.name is not None:
            whole = [one for one in generations if one.name == asked.name and store.vectors.waiting_count(one.id) == 0]
            used = whole[-1] if whole else None
        missing = store.vectors.waiting_count(live.id) if live is not None else 0
        age = max(0.0, now - (store.vectors.oldest_waiting(live.id) or now)) if live is not None and missing else 0.0
        if used is None:
            return Choice(warnings=[f"{self._why_not(asked)}; {ALONE}"], age_s=age, live=live)
        warnings = []
        if not used.live:
            warnings.append(f"{'; '.join(asked.failures)}; found with {used.provider}/{used.model} meanwhile")
        elif missing:
            warnings.append(f"{missing} pieces are not embedded yet; they are found by keywords alone")
        if asked.vector is not None and is_blank(asked.vector):
            return Choice(warnings=[f"the embedding model does not know these letters; {ALONE}"], age_s=age, live=live)
        return Choice(used, asked.vector, warnings, age, live=live)

    def _why_not(self, asked: QueryVector) -> str:
        if asked.failures:
            return asked.failures[0]
        wanted = self._providers[0]
        if wanted.model.state == "loading" or wanted.model.is_resting:
            return loading(wanted)
        if wanted.model.embedder is None and wanted.model.failure is not None:
            return str(wanted.model.failure)
        return "the index is being built with the embedding model"


class Searcher:
    """For one space, until `close`."""

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
        """`damage`: what the space's connections cannot read; `former`: see `IndexSettings`."""
        self._threads = threads
        self._budget = indexer.budget
        self._indexer = indexer
        self._damage = damage
        self._weights = weights
        self._reranker = reranker
        self._former_of = former
        self._providers = list(indexer.providers)
        self._serving = Serving(self._providers, indexer)
        self._yardsticks = Yardsticks(self._providers)
        self._former: LoadedModel | None = None
        self._counting: asyncio.Task[None] | None = None
        self._warmed: int | None = None  # the generation that was brought into memory
        self._warming: asyncio.Task[None] | None = None
        self._closing = False
        self._stemmed = lru_cache(self._lines_kept)(stem_line)
        self._latencies_ms: deque[float] = deque(maxlen=LATENCIES_KEPT)

    async def open(self) -> None:
        """Looks at what is there, and brings the vectors into memory in the background. Raises StorageError."""
        live = await self._threads.read(live_generation)
        if live is not None and self._former_of is not None:
            self._former = self._former_of(live)
        if self._former is not None:
            self._providers.append(BudgetedModel(self._former, self._budget))
        await self._threads.read(self._serving.look)
        self.warm(live)

    async def close(self) -> None:
        """Ends what goes on in the background, and writes down what questions have cost."""
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
        """Median and 95th percentile of the last searches, in milliseconds; None before the first."""
        ordered = sorted(self._latencies_ms)
        return _percentile(ordered, 0.50), _percentile(ordered, 0.95)

    def forget(self) -> None:
        """The vectors in memory may no longer be those of the database; they come again with the next search."""
        self._warmed = None

    @property
    def _lines_kept(self) -> int:
        return max(FEWEST_LINES, int(LINES_KEPT * self._threads.share))

    def forget_texts(self) -> None:
        """Keep no line and no question in memory that was met before."""
        self._stemmed.cache_clear()
        for provider in self._providers:
            provider.model.forget_questions()

    async def search(self, query: SearchQuery) -> SearchResult:
        if self._closing:
            raise StorageError("the space is closed")
        started = time.perf_counter()
        result, live = None, None
        for attempt in range(QUESTION_TRIES):
            asked = await self._serving.ask(query.text)
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
        self._yardsticks.begin(asked.name)
        total = (time.perf_counter() - started) * 1e3
        self._latencies_ms.append(total)
        result.timings["total"] = total
        note_stages(result.timings)
        return result

    def _search(
        self, store: Store, query: SearchQuery, asked: QueryVector, is_last: bool
    ) -> tuple[SearchResult | None, Generation | None]:
        """None for a result: another model serves now, so the question has to be embedded again; the last time it goes without."""
        kept, may_keep = self._stemmed.cache_parameters()["maxsize"], self._lines_kept
        # Connections come and go all the time: what is kept is not thrown away to keep twice as much.
        if may_keep < kept or may_keep >= 4 * kept:
            self._stemmed = lru_cache(may_keep)(stem_line)
        now = time.time()
        timings: dict[str, float] = {} if asked.vector is None else {"embed": asked.embed_ms}
        # One view for all that follows: a generation swapped in meanwhile must not be read with the numbers of the one before.
        with store.reading():
            choice = self._serving.choose(store, asked, now=now)
            if choice.is_stale and not is_last:
                return None, None
            if choice.is_stale:
                said = "the embedding model is being changed; found by keywords alone"
                choice = Choice(warnings=[said], live=choice.live)
            found = search.run(
                store,
                query,
                generation=choice.generation,
                vector=choice.vector,
                weights=self._weights,
                now=now,
                timings=timings,
                yardstick=self._yardsticks.of(asked.name),
                reranker=self._reranker,
                stemmed=self._stemmed,
            )
        warnings = [*choice.warnings, *self._damage.warnings(), *found.warnings]
        indexer = self._indexer
        if indexer.failure is not None or indexer.waits_for_room or indexer.uncuttable:
            warnings += indexer.warnings()
        mode = "keyword" if choice.vector is None else "hybrid" if found.has_words else "vector"
        return SearchResult(found.hits, mode, warnings, choice.age_s, timings, found.explanation), choice.live

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
        """Brings a generation that went live into memory, in the background; until then the database is searched, which takes longer."""
        if live is None or live.id == self._warmed or (self._warming is not None and not self._warming.done()):
            return
        self._warmed = live.id
        self._warming = asyncio.create_task(self._warm_up(live.id), name="confide-warm")

    async def _warm_up(self, generation: int) -> None:
        # Step by step, so that searches take turns with it in the same threads.
        try:
            while not self._closing and await self._threads.read(lambda store: store.vectors.warm(generation)):
                pass
        except DamagedError:
            self._warmed = None  # the upkeep, which has been told, makes them whole first
        except ConfideError as error:
            log.warning("the vectors could not be brought into memory: %s", type(error).__name__)
            self._warmed = None


def _percentile(ordered: list[float], share: float) -> float | None:
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 1) if ordered else None


def note_stages(timings_ms: dict[str, float]) -> None:
    """How long a search took, for the operator; the steps that have no series of their own are one together, `rest`."""
    rest = timings_ms["total"]
    for stage in STAGES_SHOWN & timings_ms.keys():
        figures.SEARCH_STAGE.labels(stage).observe(timings_ms[stage] / 1e3)
        if stage != "total":
            rest -= timings_ms[stage]
    figures.SEARCH_STAGE.labels("rest").observe(max(0.0, rest) / 1e3)
