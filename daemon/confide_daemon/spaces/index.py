"""The index of a space: chunks, their vectors and the search over them, kept up to date with the
documents.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from confide_daemon.datadir.disk import Disk
from confide_daemon.embedding import LoadedModel
from confide_daemon.retrieval.indexing import indexed_model
from confide_daemon.retrieval.indexing.generations import live_generation
from confide_daemon.retrieval.indexing.indexed_model import BudgetedModel, Condition, MonthlyBudget
from confide_daemon.retrieval.indexing.indexer import RETRIED, Derivation, Indexer, IndexProgress
from confide_daemon.retrieval.search.searcher import Searcher
from confide_daemon.spaces.file import SpaceFile
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.store.space_store import Store


class Index:
    """The index of an open space.

    Attributes:
        budget: the monthly limit of tokens sent to embedding providers, counted in the database.
        providers: the embedding models, the preferred one first.
        derivation: creates chunks and keywords of a document in the transaction that changes it.
    """

    def __init__(
        self,
        file: SpaceFile,
        settings: IndexSettings,
        models: Sequence[LoadedModel],
        disk: Disk,
        clock: Callable[[], float],
    ) -> None:
        self._file = file
        self._threads = file.threads
        self.budget = MonthlyBudget(clock)
        self.providers = [BudgetedModel(handle, self.budget) for handle in models]
        self.derivation = Derivation(settings.chunks)
        self.indexer = Indexer(file.threads, self.providers, self.budget, self.derivation, settings.patience, disk)
        self.searcher = Searcher(
            file.threads,
            self.indexer,
            file.damage,
            weights=settings.weights,
            reranker=settings.reranker,
            former=settings.former,
        )

    async def open(self) -> None:
        """Load the state of the index, after renewing chunks and keywords of documents that other
        nodes have changed. Raises StorageError if the database cannot be read or written.
        """
        if self._file.behind:
            await self._threads.maintain(lambda store: self.derivation.follow_all(store, self._file.behind))
        await self._threads.read(self.budget.load)
        await self.searcher.open()

    async def close(self) -> None:
        """Stop indexing after the current batch."""
        await self.indexer.close()
        await self.searcher.close()

    @property
    def is_at_rest(self) -> bool:
        """True if nothing is being indexed: all documents are done, or no progress is possible now."""
        return self.indexer.idle and not self.indexer.is_loading

    @property
    def is_broken(self) -> bool:
        """True if indexing has stopped on an error, or a document cannot be cut into chunks."""
        return self.indexer.failure is not None or bool(self.indexer.uncuttable)

    @property
    def is_without_model(self) -> bool:
        """True if no embedding model is available."""
        standings = [one for one in self.indexer.standings() if not one.is_aside]
        return all(one.condition in (Condition.DOWN, Condition.REFUSED) for one in standings)

    def progress(self, store: Store) -> IndexProgress:
        """Return how many chunks have vectors, and how many still wait for one."""
        outlook = self.indexer.outlook()
        with store.reading():
            return self.indexer.progress(store, outlook)

    async def count_queued(self, projects: frozenset[str]) -> int:
        """Return how many chunks of these projects still wait for a vector."""

        def work(store: Store) -> int:
            with store.reading():
                live = live_generation(store)
                if live is None:
                    return sum(count.chunks for count in store.documents.counts(projects).values())
                return store.vectors.waiting_among(live.id, projects)

        return await self._threads.read(work)

    async def renew_foreign(self) -> int:
        """Recompute all vectors if a sample shows that another model of the same name made them.
        Return the size of that sample, or 0 if the vectors fit.
        """
        for provider in self.providers:
            name = provider.name
            texts, vectors = await self._threads.examine(lambda store: indexed_model.sample(store, name))  # noqa: B023
            if await indexed_model.is_foreign(provider, texts, vectors):
                self.indexer.renew()
                return len(texts)
        return 0

    async def cut_again(self) -> int:
        """Retry all documents that could not be cut into chunks; return how many could be cut now."""
        cut_now = 0
        after: int | None = 0
        while after is not None:
            work = functools.partial(self.derivation.retry, after=after, limit=RETRIED)
            more, after = await self._threads.maintain(work)
            cut_now += more
        return cut_now

    def on_repair(self, *, vectors_changed: bool) -> None:
        """Wake the indexer after a repair of derived rows. `vectors_changed`: also drop the vectors
        in memory.
        """
        if vectors_changed:
            self._file.scan.forget()
            self.searcher.forget()
        self.indexer.wake()
