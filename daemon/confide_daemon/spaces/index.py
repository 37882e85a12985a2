"""The index of one space: pieces, their vectors and the search over them, kept in step with the documents."""

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
    """One for each open space.

    Attributes:
        budget: of tokens, which is counted in the database.
        providers: the models, the wanted one first.
        derivation: what is derived of a document, within the transaction that changes it.
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
        """Follow what other nodes have changed, and look at what is there. Raises StorageError."""
        if self._file.behind:
            await self._threads.maintain(lambda store: self.derivation.follow_all(store, self._file.behind))
        await self._threads.read(self.budget.load)
        await self.searcher.open()

    async def close(self) -> None:
        """End after the batch that is under way."""
        await self.indexer.close()
        await self.searcher.close()

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is being indexed: all is done, or cannot be now."""
        return self.indexer.idle and not self.indexer.is_loading

    @property
    def is_broken(self) -> bool:
        """Whether indexing has stopped, or a document cannot be cut."""
        return self.indexer.failure is not None or bool(self.indexer.uncuttable)

    @property
    def is_without_model(self) -> bool:
        """Whether none of the models can be asked."""
        return all(one.condition in (Condition.DOWN, Condition.REFUSED) for one in self.indexer.standings())

    def progress(self, store: Store) -> IndexProgress:
        """How far the vectors are."""
        outlook = self.indexer.outlook()
        with store.reading():
            return self.indexer.progress(store, outlook)

    async def queued(self, projects: frozenset[str]) -> int:
        """How many pieces of these projects wait for their vectors."""

        def work(store: Store) -> int:
            with store.reading():
                live = live_generation(store)
                if live is None:
                    return sum(count.chunks for count in store.documents.counts(projects).values())
                return store.vectors.waiting_among(live.id, projects)

        return await self._threads.read(work)

    async def renew_foreign(self) -> int:
        """Have vectors computed anew that their model, which has another one's name, does not give; of how many that was seen."""
        for provider in self.providers:
            name = provider.name
            texts, vectors = await self._threads.examine(lambda store: indexed_model.sample(store, name))  # noqa: B023
            if await indexed_model.is_foreign(provider, texts, vectors):
                self.indexer.renew()
                return len(texts)
        return 0

    async def cut_again(self) -> int:
        """Try documents again that could not be cut; how many could be now."""
        cut_now = 0
        after: int | None = 0
        while after is not None:
            work = functools.partial(self.derivation.retry, after=after, limit=RETRIED)
            more, after = await self._threads.maintain(work)
            cut_now += more
        return cut_now

    def mended(self, *, vectors_changed: bool) -> None:
        """Derived rows were put right: some may have to be made again, and vectors may no longer be those in memory."""
        if vectors_changed:
            self._file.scan.forget()
            self.searcher.forget()
        self.indexer.wake()
