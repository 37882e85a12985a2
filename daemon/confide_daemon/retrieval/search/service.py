"""Searches one space: the question's vector, one view of the database, the ranking in it, and what is said about both."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from confide_crypto.errors import ConfideError
from confide_daemon import figures
from confide_daemon.embedding import Model
from confide_daemon.errors import DamagedError, StorageError
from confide_daemon.retrieval.indexing.generations import Asked, Choice, Serving, live_generation
from confide_daemon.retrieval.indexing.indexer import Indexer
from confide_daemon.retrieval.indexing.model import Budget, Provider
from confide_daemon.retrieval.search import engine as search
from confide_daemon.retrieval.search.engine import SearchResult
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.retrieval.search.ranking import Weights
from confide_daemon.retrieval.search.scoring import Yardsticks
from confide_daemon.retrieval.search.terms import stem_line
from confide_daemon.store.database import Damage
from confide_daemon.store.store import Store
from confide_daemon.store.tables.pieces import Generation
from confide_daemon.store.threads import StoreThreads

if TYPE_CHECKING:
    from confide_daemon.embedding.reranker import Reranker

log = logging.getLogger(__name__)
LATENCIES_KEPT = 512
# Of the pieces that searches look at closely, which come again and again: 4 MB with the usual small pieces. To stem one takes 5 us.
LINES_KEPT = 8192
# A question is embedded again when another model serves by the time it could be searched; more swaps in one search there are not.
QUESTION_TRIES = 3
# Tokens of questions are written down this long after the first of them: a crash may forget so much of them.
COUNTED_AFTER_S = 5.0


class Searcher:
    """For one space, until `close`."""

    def __init__(
        self,
        threads: StoreThreads,
        providers: Sequence[Provider],
        budget: Budget,
        indexer: Indexer,
        damage: Damage,
        *,
        weights: Weights,
        reranker: Reranker | None,
        former: Callable[[Generation], Model | None] | None,
    ) -> None:
        """`damage`: what the space's connections cannot read; `budget` counts the tokens of questions; `former`: see `IndexSettings`."""
        self._threads = threads
        self._budget = budget
        self._indexer = indexer
        self._damage = damage
        self._weights = weights
        self._reranker = reranker
        self._former_of = former
        self._providers = list(providers)
        self._serving = Serving(self._providers, indexer.wake)
        self._yardsticks = Yardsticks(self._providers)
        self._former: Model | None = None
        self._counting: asyncio.Task[None] | None = None
        self._warmed: int | None = None  # the generation that was brought into memory
        self._warming: asyncio.Task[None] | None = None
        self._closing = False
        self._stemmed = lru_cache(LINES_KEPT)(stem_line)
        self._latencies_ms: deque[float] = deque(maxlen=LATENCIES_KEPT)

    async def open(self) -> None:
        """Looks at what is there, and brings the vectors into memory in the background. Raises StorageError."""
        live = await self._threads.read(live_generation)
        if live is not None and self._former_of is not None:
            self._former = self._former_of(live)
        if self._former is not None:
            self._providers.append(Provider(self._former, self._budget))
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
        figures.searched(result.timings)
        return result

    def _search(
        self, store: Store, query: SearchQuery, asked: Asked, is_last: bool
    ) -> tuple[SearchResult | None, Generation | None]:
        """None for a result: another model serves now, so the question has to be embedded again; the last time it goes without."""
        now = time.time()
        timings: dict[str, float] = {} if asked.vector is None else {"embed": asked.embed_ms}
        # One view for all that follows: a generation swapped in meanwhile must not be read with the numbers of the one before.
        with store.reading():
            choice = self._serving.choose(store, asked, now=now)
            if choice.is_stale and not is_last:
                return None, None
            if choice.is_stale:
                choice = Choice(warnings=["the embedding model is being changed; found by keywords alone"])
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
            live = live_generation(store)
        warnings = [*choice.warnings, *self._damage.warnings(), *found.warnings, *self._indexer.warnings()]
        mode = "keyword" if choice.vector is None else "hybrid" if found.has_words else "vector"
        return SearchResult(found.hits, mode, warnings, choice.age_s, timings, found.explanation), live

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
