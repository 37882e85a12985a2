"""One private memory: documents, their revisions and the index, behind an asynchronous face.

One thread writes; a few read. Everything that waits for the disk or computes runs in those threads. A document, its revision, its
pieces and its keyword rows are committed in one transaction, so a document can be found by its words when `put` returns; vectors
follow in the background.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from confide_daemon import documents, transcripts, upkeep
from confide_daemon.custody.rekeying import change_key
from confide_daemon.embed import EmbedderHandle
from confide_daemon.errors import DamagedError, StorageError
from confide_daemon.history import DELETED_DAYS, History
from confide_daemon.index import Indexer, IndexSettings, Progress
from confide_daemon.indexing import report, resemblance
from confide_daemon.indexing.budget import Budget
from confide_daemon.indexing.plan import Condition, Held, holdings
from confide_daemon.indexing.provider import Provider
from confide_daemon.notes.dedupe import Deduplication
from confide_daemon.notes.duplicates import Duplicates
from confide_daemon.notes.shelf import Notes
from confide_daemon.projects import Projects
from confide_daemon.reading import newest_text, read_document
from confide_daemon.results import (
    Clash,
    Comparison,
    DeleteResult,
    DocumentText,
    PutResult,
    RebuildResult,
    RemoveResult,
    SpaceStatus,
)
from confide_daemon.sealing.records import SealedRecords
from confide_daemon.sealing.stored_texts import StoredTexts
from confide_daemon.sealing.vault import Vault
from confide_daemon.sealing.vaulted import VaultRecords
from confide_daemon.search import Hit, SearchQuery, SearchResult
from confide_daemon.searching.searcher import Searcher, live_generation
from confide_daemon.store import DocumentRow, Filter, Store, salvage
from confide_daemon.store.damage import Damage
from confide_daemon.store.scan import VectorScan
from confide_daemon.store.sqlite import SqliteStore
from confide_daemon.threads import StoreThreads
from confide_daemon.upkeep import Upkeep, mark_closed
from confide_daemon.usage import Usage
from confide_daemon.writes import Operation, Writer, compare_states, states

__all__ = [
    "Clash",
    "Comparison",
    "DocumentText",
    "Hit",
    "IndexSettings",
    "Operation",
    "PutResult",
    "RebuildResult",
    "RemoveResult",
    "SearchQuery",
    "SearchResult",
    "Space",
    "SpaceStatus",
]

log = logging.getLogger(__name__)
T = TypeVar("T")
# More are not told of, so that status stays small.
MAX_CLASHES = 21


class Space:
    """An open space. Made by `Space.open`, ended by `close`."""

    def __init__(
        self,
        space_id: str,
        threads: StoreThreads,
        writer: Writer,
        embedders: Sequence[EmbedderHandle],
        settings: IndexSettings,
        *,
        deleted_days: int,
        clock: Callable[[], float],
        scan: VectorScan,
        damage: Damage,
        crashed: bool,
        vault: Vault | None,
    ):
        """`scan`: its vectors in memory; `damage`: what its connections cannot read; `crashed`: it was not closed the last time."""
        self.space_id = space_id
        self._damage = damage
        self._scan = scan
        self._threads = threads
        self._writer = writer
        self._settings = settings
        self._budget = Budget(clock)
        self._providers = [Provider(handle, self._budget) for handle in embedders]
        self._indexer = Indexer(threads.write, self._providers, self._budget, settings)
        self._searcher = Searcher(threads, self._providers, self._budget, self._indexer, damage, settings)
        self.history = History(threads, writer, self._change, deleted_days=deleted_days, clock=clock)
        self.projects = Projects(threads)
        self.records = SealedRecords(threads, clock) if vault is None else VaultRecords(threads, vault, space_id, clock)
        self.usage = Usage(threads, clock)
        self.duplicates = Duplicates(
            threads,
            self._providers,
            self._budget,
            settings.chunks,
            self._indexer.wake,
            self._searcher.warm,
            similarity=settings.duplicate_similarity,
        )
        self.notes = Notes(threads, writer, self._change)
        self.deduplication = Deduplication(threads, self.notes)
        self.stored_texts = StoredTexts(threads, settings, self._indexer.wake, self._searcher.forget_texts)
        self.upkeep = Upkeep(
            threads,
            damage,
            crashed=crashed,
            renew_foreign=self._renew_foreign,
            on_mended=self._mended,
            clock=clock,
        )

    @classmethod
    async def open(
        cls,
        path: Path,
        key: bytes,
        *,
        space_id: str,
        settings: IndexSettings,
        embedder: EmbedderHandle | Sequence[EmbedderHandle],
        deleted_days: int = DELETED_DAYS,
        clock: Callable[[], float] = time.time,
        vault: Vault | None = None,
    ) -> Space:
        """Opens the space, making it when the file is not there, and takes up the indexing and the upkeep.

        Args:
            path: the database file; its folder must exist.
            key: 32 bytes.
            embedder: the models, the wanted one first; each of the others takes the place of those before it while they cannot be used.
            deleted_days: how long a deleted document can come back.
            clock: seconds since 1970, for what is deleted too long ago and for the month of a budget.
            vault: what keeps new sealed records; None keeps them in the database.

        Raises:
            StorageError: wrong key, damaged beyond repair, newer schema, not writable, disk full.
        """
        handles = [embedder] if isinstance(embedder, EmbedderHandle) else list(embedder)

        async def begin() -> Space:
            return await cls._begin(
                path, key, space_id, settings, handles, deleted_days=deleted_days, clock=clock, vault=vault
            )

        try:
            return await begin()
        except DamagedError:
            # Something that nothing can begin without. Whatever else is damaged, the upkeep meets.
            lost = await asyncio.to_thread(salvage.salvage, path, key)
        log.warning("the database was rebuilt from what could be read of it; the damaged file is kept beside it")
        space = await begin()
        await space.upkeep.salvaged(lost)
        return space

    @classmethod
    async def _begin(
        cls,
        path: Path,
        key: bytes,
        space_id: str,
        settings: IndexSettings,
        embedders: Sequence[EmbedderHandle],
        *,
        deleted_days: int,
        clock: Callable[[], float],
        vault: Vault | None,
    ) -> Space:
        scan, damage = VectorScan(), Damage()
        store, crashed = await asyncio.to_thread(_open_marked, path, key, scan, damage)
        threads = StoreThreads(
            store, lambda: SqliteStore.open(path, store.key, writer=False, now=time.time(), scan=scan, damage=damage)
        )
        space = cls(
            space_id,
            threads,
            Writer(store, settings),
            embedders,
            settings,
            deleted_days=deleted_days,
            clock=clock,
            scan=scan,
            damage=damage,
            crashed=crashed,
            vault=vault,
        )
        try:
            await space.projects.open()
            await threads.read(space._budget.load)
            await space._searcher.open()
        except BaseException:
            await threads.close()
            raise
        space._indexer.start()
        space.history.start()
        space.upkeep.start()
        space.records.start()
        return space

    async def rekey(self, key: bytes, *, follow: Callable[[int, int], None] = lambda _done, _total: None) -> None:
        """Changes the key of the database (32 bytes), while everybody goes on. Raises as `rekeying.change_key`."""
        await change_key(self._threads, key, follow)
        if kept := await self._threads.read(lambda store: store.damaged_copies()):
            log.warning(
                "beside space %s, %d former files with damage are under its old key until they are removed",
                self.space_id,
                kept,
            )

    async def close(self) -> None:
        """Ends the indexing after its current batch and closes the database."""
        await self.records.close()
        await self.upkeep.close()
        await self.history.close()
        await self.duplicates.close()
        await self._indexer.close()
        await self._searcher.close()
        await self.usage.close()
        with contextlib.suppress(StorageError):
            await self._threads.maintain(mark_closed)
        await self._threads.close()

    # ---------------------------------------------------------------- documents

    async def put(self, project: str, path: str, text: str, *, base: int, author: str) -> PutResult:
        """Takes a machine's version of a document, merging it when the space has a newer one than `base`.

        Raises:
            InvalidPathError, InvalidTextError, TooLargeError, StorageError.
        """
        documents.check_path(path)
        documents.check_text(text)
        return await self._change(lambda: self._writer.put(project, path, text, base=base, author=author))

    async def append(
        self,
        project: str,
        path: str,
        text: str,
        *,
        heading: str | None,
        author: str,
        operation: Operation | None = None,
    ) -> PutResult:
        """Adds text at the end of a document or of a section of it; either is made when missing.

        Raises:
            InvalidPathError, InvalidTextError, TooLargeError, StorageError.
            OperationError: the operation's id was used for another change.
        """
        documents.check_path(path)
        documents.check_text(text)
        append = self._writer.append
        return await self._change(
            lambda: append(project, path, text, heading=heading, author=author, operation=operation)
        )

    async def replace(
        self,
        project: str,
        path: str,
        text: str,
        *,
        heading: str | None,
        author: str,
        operation: Operation | None = None,
    ) -> PutResult:
        """Replaces a document or a section of it. Raises as `append`, and NotFoundError when there is no such section."""
        documents.check_path(path)
        documents.check_text(text)
        replace = self._writer.replace
        return await self._change(
            lambda: replace(project, path, text, heading=heading, author=author, operation=operation)
        )

    async def remove(self, project: str, path: str, *, base: int, author: str) -> RemoveResult:
        """Deletes a document unless it is newer than `base`. Raises NotFoundError when there never was one."""
        documents.check_path(path)
        return await self._change(lambda: self._writer.remove(project, path, base=base, author=author))

    async def delete(
        self, project: str, path: str, *, author: str, base: int | None = None, operation: Operation | None = None
    ) -> DeleteResult:
        """Deletes a document at revision `base` (None: any); it can be restored for a while. Raises as `Writer.delete`."""
        delete = self._writer.delete
        return await self._change(lambda: delete(project, path, author=author, base=base, operation=operation))

    async def read(self, project: str, path: str, *, revision: int | None = None) -> DocumentText:
        """A document, at its newest revision or an older one. Raises NotFoundError, with names like it as a hint."""
        return await self._threads.read(lambda store: read_document(store, project, path, revision))

    async def newest_text(self, project: str, path: str) -> str | None:
        """The text that a document has now; None where there is none, or it was deleted. Cheaper there than `read`."""
        return await self._threads.read(lambda store: newest_text(store, project, path))

    async def documents(self, projects: frozenset[str] | None, *, sources: frozenset[str] | None) -> list[DocumentRow]:
        """The documents of these projects and sources (None: all), by name."""

        def work(store: Store) -> list[DocumentRow]:
            return [
                row
                for row in store.documents(projects)
                if not row.deleted and (sources is None or row.source in sources)
            ]

        return await self._threads.read(work)

    async def documents_following(
        self, projects: frozenset[str] | None, after: tuple[str, str], *, sources: frozenset[str] | None, limit: int
    ) -> list[DocumentRow]:
        """The documents of these projects and sources (None: all), by name, from the first above (project, path)."""
        return await self._threads.read(
            lambda store: store.documents_following(projects, after, sources=sources, limit=limit)
        )

    async def has_word(self, word: str, projects: frozenset[str] | None, sources: frozenset[str] | None) -> bool:
        """Whether a document of these projects and sources (None: all) has this word, of letters and digits, in its text."""
        allowed = Filter(projects=projects, sources=sources)
        return bool(await self._threads.read(lambda store: store.keyword_candidates(f'"{word}"', allowed, limit=1)))

    async def refill(
        self, project: str, path: str, text: str, *, author: str, is_dry: bool = False
    ) -> tuple[str, PutResult | None]:
        """Makes a document that is not there: `new`, `same` where it holds just this, `differs` where it holds something else and stays.

        Raises:
            InvalidPathError, InvalidTextError, TooLargeError, StorageError.
        """
        digest = documents.text_hash(text)

        def work() -> tuple[str, PutResult | None]:
            row = self._writer.store.document(project, path)
            if row is not None and not row.deleted:
                return ("same" if row.hash == digest else "differs"), None
            return "new", None if is_dry else self._writer.create(project, path, text, author=author)

        return await self._change(work)

    async def transcript(self, name: transcripts.Name) -> transcripts.State:
        """How far a session's transcript is."""
        return await self._threads.read(lambda store: transcripts.state(store, name))

    async def take_transcript(self, batch: transcripts.Batch, *, author: str) -> tuple[transcripts.State, bool]:
        """Takes a batch of a transcript if it goes on from where that is: where it is now, and whether it was taken.

        Raises:
            StorageError.
        """
        try:
            return await self._threads.write(
                lambda store: transcripts.take(store, self._settings, batch, author=author)
            )
        finally:
            self._indexer.wake()

    async def forget_transcript(self, name: transcripts.Name, *, author: str) -> transcripts.State:
        """Deletes a session's transcript, texts included, for good."""
        return await self._threads.write(lambda store: transcripts.forget(store, self._settings, name, author=author))

    async def compare(
        self,
        project: str,
        entries: Iterable[tuple[str, str, int]],
        gone: Iterable[tuple[str, int]],
        *,
        buckets: frozenset[int] | None = None,
        author: str = "",
    ) -> Comparison:
        """What a machine has to send, adopt, pull and drop, given its files (of some buckets); deletes here what it deleted."""
        here = [(path, content, base) for path, content, base in entries]
        lost = [(path, base) for path, base in gone]

        def work(store: Store) -> Comparison:
            if lost:
                self._writer.bury(project, lost, author=author)
            return compare_states(store, project, here, lost, buckets)

        return await self._threads.write(work)

    async def states(self, project: str) -> list[tuple[str, str, int]]:
        """(path, hash, revision) of every document that working copies have."""
        return await self._threads.read(lambda store: states(store, project))

    async def _change(self, work: Callable[[], T]) -> T:
        try:
            return await self._threads.write(lambda _store: work())
        finally:
            # Also where nobody waits any more, since its connection broke: the thread makes the change all the same.
            self._indexer.wake()

    # ---------------------------------------------------------------- search

    async def search(self, query: SearchQuery) -> SearchResult:
        """The pieces that answer the query, best first; by keywords alone while there is no model, which `mode` and `warnings` say.

        Raises:
            StorageError.
        """
        return await self._searcher.search(query)

    async def _renew_foreign(self) -> int:
        """Has vectors computed anew that their model, which has another one's name, does not give; of how many that was seen."""
        for provider in self._providers:
            name = provider.name
            texts, vectors = await self._threads.examine(lambda store: resemblance.sample(store, name))  # noqa: B023
            if await resemblance.is_foreign(provider, texts, vectors):
                self._indexer.renew()
                return len(texts)
        return 0

    def _mended(self, vectors_changed: bool) -> None:
        """Derived rows were put right: some may have to be made again, and vectors may no longer be those in memory."""
        if vectors_changed:
            self._scan.forget()
            self._searcher.forget()
        self._indexer.wake()

    # ---------------------------------------------------------------- index

    async def status(self, projects: frozenset[str] | None) -> SpaceStatus:
        """How the space is; counts for the given projects only (None: all)."""
        return await self._threads.read(lambda store: self._status(store, projects))

    async def queued(self, projects: frozenset[str]) -> int:
        """How many pieces of these projects wait for their vectors."""

        def work(store: Store) -> int:
            with store.reading():
                live = live_generation(store)
                if live is None:
                    return sum(count.chunks for count in store.counts(projects).values())
                return store.waiting_among(live.id, projects)

        return await self._threads.read(work)

    def _status(self, store: Store, projects: frozenset[str] | None) -> SpaceStatus:
        outlook = self._indexer.outlook()
        with store.reading():
            state = self._indexer.progress(store, outlook)
            sources = store.counts(projects)
            held = holdings(store)
            total = state.total
            if projects is not None:
                # Who reaches some projects alone learns nothing of how much there is in others.
                total = sum(count.chunks for count in sources.values())
                held = [Held(one.generation, store.waiting_among(one.generation.id, projects)) for one in held]
                missing = {one.generation.id: one.missing for one in held}
                state = replace(state, total=total, done=total - missing.get(state.generation or 0, 0))
            live = live_generation(store)
            waited = store.oldest_waiting(live.id) if live is not None and state.done < total else None
            names = store.project_names()
            size_bytes = store.size_bytes()
            clashes = store.clashing(projects, limit=MAX_CLASHES)
        p50_ms, p95_ms = self._searcher.latencies()
        warnings = report.warnings(self._providers, live)
        if self._indexer.failure is not None:
            warnings.append(f"indexing has stopped: {self._indexer.failure}")
        warnings += self.upkeep.warnings()
        return SpaceStatus(
            space_id=self.space_id,
            files=sum(count.files for count in sources.values()),
            chunks=sum(count.chunks for count in sources.values()),
            sources=sources,
            projects=[name for name in names if projects is None or name in projects],
            provider=live.provider if live else None,
            model=live.model if live else None,
            dimensions=live.dimensions if live else None,
            embedder=self._providers[0].handle.state,
            queued=state.total - state.done,
            index_age_s=0.0 if waited is None else max(0.0, time.time() - waited),
            reembedding=(state.generation, state.done, state.total)
            if state.building and state.generation is not None
            else None,
            size_bytes=size_bytes,
            at_rest="encrypted (AEGIS-256)",
            search_p50_ms=p50_ms,
            search_p95_ms=p95_ms,
            warnings=warnings,
            clashes=[Clash(*clash) for clash in clashes],
            generations=report.generation_status(held, state.generation if state.building else None, total),
            providers=[report.provider_status(provider) for provider in self._providers],
            health=self.upkeep.health(),
        )

    async def wait_indexed(self, *, timeout_s: float, progress: Callable[[int, int], None] | None = None) -> bool:
        """Waits until every piece has its vector; False when that cannot be (no model, a failure) or takes longer than `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        has_retried = False
        rested_at = -1
        while True:
            state = await self._threads.read(self._progress)
            if progress is not None:
                progress(state.done, state.total)
            if state.complete:
                return True
            # At rest twice in a row, and in between: what was committed meanwhile was heard of by now, and did not wake it.
            moves = self._indexer.moves if self.is_at_rest else -1
            is_stuck = moves == rested_at >= 0
            left = deadline - time.monotonic()
            if is_stuck and self._indexer.failure is not None and not has_retried:
                # What stopped it may be over by now, as when room was made on the disk.
                has_retried, is_stuck, moves = True, False, -1
                self._indexer.wake()
            if left <= 0 or is_stuck:
                return False
            rested_at = moves
            # A model that becomes ready wakes the indexer, which tells us; the cap is for a change missed between the two lines above.
            await self._indexer.wait_move(min(left, 0.25))

    def _progress(self, store: Store) -> Progress:
        outlook = self._indexer.outlook()
        with store.reading():
            return self._indexer.progress(store, outlook)

    async def rebuild(
        self,
        *,
        reembed: bool,
        progress: Callable[[int, int], None] | None = None,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> RebuildResult:
        """Cuts every document again; with `reembed` a new generation of vectors is built beside the live one as well.

        One transaction a document, so that others write meanwhile; cancelled, it ends between two.
        """
        documents = await self._threads.read(lambda store: [row.id for row in store.documents(None) if not row.deleted])
        added = kept = removed = 0
        for number, document in enumerate(documents):
            if is_cancelled():
                return RebuildResult(added, kept, removed)
            if progress is not None:
                progress(number, len(documents))
            one = await self._threads.write(lambda _store: self._writer.recut(document))  # noqa: B023 - awaited here
            added, kept, removed = added + one.chunks_added, kept + one.chunks_updated, removed + one.chunks_removed
        if reembed:
            self._indexer.renew()
        self._indexer.forgive()
        return RebuildResult(added, kept, removed)

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is being indexed: all is done, or cannot be now."""
        return self._indexer.idle and not self._indexer.is_loading

    def ailments(self) -> set[str]:
        """What of it does not work as it should, in words that tell nothing of what it holds: storage, index, embedding."""
        state = self.upkeep.health().state
        found = {"storage"} if state == "damaged" else {"index"} if state == "healing" else set()
        if self._indexer.failure is not None:
            found.add("index")
        if all(one.condition in (Condition.DOWN, Condition.REFUSED) for one in self._indexer.standings()):
            found.add("embedding")
        return found


def _open_marked(path: Path, key: bytes, scan: VectorScan, damage: Damage) -> tuple[SqliteStore, bool]:
    """The writing store, and whether whoever had it open last did not close it."""
    store = SqliteStore.open(path, key, writer=True, now=time.time(), scan=scan, damage=damage)
    try:
        return store, upkeep.open_marked(store, now=time.time())
    except BaseException:
        store.close()
        raise
