"""One private memory: documents, their revisions and the index, behind an asynchronous face.

One thread writes; a few read. Everything that waits for the disk or computes runs in those threads. A document, its revision, its
pieces and its keyword rows are committed in one transaction, so a document can be found by its words when `put` returns; vectors
follow in the background.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from confide_crypto.errors import RequestError
from confide_crypto.sealing.roster import Roster
from confide_daemon.datadir.disk import Disk
from confide_daemon.documents.history import DELETED_DAYS, History
from confide_daemon.documents.listing import Listing
from confide_daemon.documents.lives import Lives
from confide_daemon.documents.overview import Overview
from confide_daemon.documents.service import Documents, Projects, Transcripts, Usage
from confide_daemon.documents.writer import Writer
from confide_daemon.embedding import Model
from confide_daemon.errors import DamagedError, StorageError
from confide_daemon.notes.dedupe import Deduplication
from confide_daemon.notes.duplicates import Duplicates
from confide_daemon.notes.service import Notes
from confide_daemon.retrieval.indexing import generations, model
from confide_daemon.retrieval.indexing.generations import (
    GenerationStatus,
    Held,
    ProviderStatus,
    holdings,
    live_generation,
)
from confide_daemon.retrieval.indexing.indexer import RETRIED, Derivation, Indexer, Progress
from confide_daemon.retrieval.indexing.model import Budget, Condition, Provider
from confide_daemon.retrieval.search.service import Searcher
from confide_daemon.sealing.records import SealedRecords
from confide_daemon.sealing.rescan import StoredTexts
from confide_daemon.sealing.vault import Vault
from confide_daemon.sealing.vault_records import VaultRecords
from confide_daemon.spaces import maintenance
from confide_daemon.spaces.maintenance import Health, Turns, Upkeep, mark_closed
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.part import SpacePart, unharmed
from confide_daemon.store.database import Damage, Outbox
from confide_daemon.store.logs import Lease
from confide_daemon.store.page_budget import PageBudget
from confide_daemon.store.quota import UNLIMITED, Quota
from confide_daemon.store.rows import PieceChanges, SourceCount
from confide_daemon.store.store import Store
from confide_daemon.store.tables.vector_scan import VectorScan
from confide_daemon.store.threads import StoreThreads
from confide_daemon.store.upkeep import salvage

log = logging.getLogger(__name__)

_Part = TypeVar("_Part", bound=SpacePart)


# More are not told of, so that status stays small.
MAX_CLASHES = 21


@dataclass(frozen=True, slots=True)
class Clash:
    """A document whose newest text holds two versions of some lines."""

    project: str
    path: str
    revision: int


@dataclass(frozen=True, slots=True)
class SpaceStatus:
    """How a space is. Counts are of the projects asked for; queue, model and size are of the whole space."""

    space_id: str
    files: int
    chunks: int
    sources: dict[str, SourceCount]
    projects: list[str]
    provider: str | None
    model: str | None
    dimensions: int | None
    embedder: str  # loading, ready, failed
    queued: int  # pieces that wait for their vectors
    index_age_s: float  # how long the oldest of them has waited
    reembedding: tuple[int, int, int] | None  # (generation, done, total) while a new one is built
    size_bytes: int | None  # None: not told
    at_rest: str
    search_p50_ms: float | None
    search_p95_ms: float | None
    warnings: list[str]
    clashes: list[Clash]  # the first of them
    generations: list[GenerationStatus] = field(default_factory=list)
    providers: list[ProviderStatus] = field(default_factory=list)  # the wanted one first
    health: Health = field(default_factory=lambda: Health("ok", [], 0))


class Space:
    """An open space. Made by `Space.open`, ended by `close`."""

    def __init__(
        self,
        space_id: str,
        threads: StoreThreads,
        writer: Writer,
        embedders: Sequence[Model],
        settings: IndexSettings,
        derivation: Derivation,
        disk: Disk,
        turns: Turns,
        *,
        deleted_days: int,
        clock: Callable[[], float],
        scan: VectorScan,
        damage: Damage,
        crashed: bool,
        vault: Vault | None,
        roster: Callable[[], Roster | None],
        around: Callable[[], tuple[int | None, bool | None]],
        held: Lease | None,
        outbox: Outbox | None,
    ):
        """`scan`: its vectors in memory; `damage`: what its connections cannot read; `crashed`: it was not closed the last time;
        `roster` and `around`: as `open` has them."""
        self.space_id = space_id
        self.clock = clock
        self.roster = roster
        self.around = around
        self.parts: list[SpacePart] = []
        self.outbox = outbox
        self._held = held
        self._damage = damage
        self._scan = scan
        self.threads = threads
        self._writer = writer
        self.derivation = derivation
        self._budget = Budget(clock)
        self._providers = [Provider(handle, self._budget) for handle in embedders]
        self.indexer = Indexer(threads.write, self._providers, self._budget, derivation, settings.patience, disk)
        self.searcher = Searcher(
            threads,
            self._providers,
            self._budget,
            self.indexer,
            damage,
            weights=settings.weights,
            reranker=settings.reranker,
            former=settings.former,
        )
        self.documents = Documents(threads, writer, self.indexer.changed)
        self.transcripts = Transcripts(threads, derivation.keep, derivation.extend, self.indexer.changed)
        self.listing = Listing(threads)
        self.overview = Overview(threads)
        self.history = History(threads, deleted_days=deleted_days, clock=clock)
        self.lives = Lives(threads)
        self.projects = Projects(threads)
        self.records = SealedRecords(threads, clock) if vault is None else VaultRecords(threads, vault, space_id, clock)
        self.usage = Usage(threads, clock)
        self.duplicates = Duplicates(
            threads,
            self._providers,
            self._budget,
            settings.chunks,
            self.indexer.wake,
            self.searcher.warm,
            similarity=settings.duplicate_similarity,
        )
        self.notes = Notes(threads, writer, self.documents.change)
        self.deduplication = Deduplication(threads, self.notes)
        self.stored_texts = StoredTexts(threads, derivation.keep, self.indexer.changed, self.searcher.forget_texts)
        self.upkeep = Upkeep(
            threads,
            damage,
            disk,
            turns,
            crashed=crashed,
            renew_foreign=self._renew_foreign,
            cut_again=self._cut_again,
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
        embedder: Model | Sequence[Model],
        deleted_days: int = DELETED_DAYS,
        quota: Quota = UNLIMITED,
        clock: Callable[[], float] = time.time,
        vault: Vault | None = None,
        pages: PageBudget | None = None,
        disk: Disk | None = None,
        turns: Turns | None = None,
        roster: Callable[[], Roster | None] = lambda: None,
        around: Callable[[], tuple[int | None, bool | None]] = lambda: (None, None),
        held: Lease | None = None,
        is_known: bool = False,
        parts: Sequence[Callable[[Space], Iterable[SpacePart]]] = (),
    ) -> Space:
        """Opens the space, making it when the file is not there, and takes up the indexing and the upkeep.

        Args:
            path: the database file; its folder must exist.
            key: 32 bytes.
            embedder: the models, the wanted one first; each of the others takes the place of those before it while they cannot be used.
            deleted_days: how long a deleted document can come back.
            quota: what it may hold.
            clock: seconds since 1970, for what is deleted too long ago and for the month of a budget.
            vault: what keeps new sealed records; None keeps them in the database.
            pages: which it shares with other spaces.
            disk: asked before what can wait is written; None: there is room.
            turns: in which it looks after itself; None: nobody else does.
            roster: gives its devices now, whose orders count; may take a while.
            around: gives how many credentials are stored in clear, and whether a backup is proven, None for what nobody knows; may take a
                while.
            held: the lease of its log, of which the file is a copy; None: the file is all there is.
            is_known: machines have used the space before, so a file that is missing is a loss, which is noted.
            parts: make what add-ons have in it.

        Raises StorageError: wrong key, damaged beyond repair, newer schema, not writable, disk full.
        """

        async def begin() -> Space:
            scan, damage, derivation = VectorScan(), Damage(), Derivation(settings.chunks)
            store, crashed, behind = await asyncio.to_thread(_open_marked, path, key, scan, damage, held)
            store.quota = quota
            threads = StoreThreads(
                store,
                lambda: Store.open(path, store.key, writer=False, now=time.time(), scan=scan, damage=damage),
                pages,
            )
            space = cls(
                space_id,
                threads,
                Writer(store, derivation.judge),
                [embedder] if isinstance(embedder, Model) else list(embedder),
                settings,
                derivation,
                disk or Disk(path.parent),
                turns or Turns(),
                deleted_days=deleted_days,
                clock=clock,
                scan=scan,
                damage=damage,
                crashed=crashed,
                vault=vault,
                roster=roster,
                around=around,
                held=held,
                outbox=store.outbox,
            )
            try:
                if behind:
                    await threads.maintain(lambda store: derivation.follow_all(store, behind))
                await space.projects.open()
                for make in parts:
                    space.parts.extend(make(space))
                for part in space.parts:
                    await part.open()
                await threads.read(space._budget.load)
                await space.searcher.open()
            except BaseException:
                await threads.close()
                raise
            space.indexer.start()
            space.history.start()
            space.upkeep.start()
            space.records.start()
            for part in space.parts:
                part.start()
            return space

        is_missing = is_known and held is None and not path.exists()
        try:
            space = await begin()
            if is_missing:
                log.error("the database file of space %s was missing: an empty one was made", space_id)
                await space.upkeep.missed()
            return space
        except DamagedError:
            if held is not None:
                # What the log has is whole, and what can be read here may not be.
                await asyncio.to_thread(held.discard, path)
                return await begin()
            # Something that nothing can begin without. Whatever else is damaged, the upkeep meets.
            lost = await asyncio.to_thread(salvage.salvage, path, key)
        log.warning("the database was rebuilt from what could be read of it; the damaged file is kept beside it")
        space = await begin()
        await space.upkeep.salvaged(lost)
        return space

    async def rekey(
        self,
        key: bytes,
        *,
        follow: Callable[[int, int], None] = lambda _done, _total: None,
        custody: dict[str, Any] | None = None,
    ) -> None:
        """Changes the key of the database (32 bytes), while everybody goes on. Raises as `StoreThreads.change_key`.

        `custody`: who keeps it then, for the log of the space.
        """
        if self.outbox is not None:
            self.outbox.custody = custody
        await self.threads.change_key(key, follow)
        if kept := await self.threads.read(lambda store: salvage.damaged_copies(store.path)):
            log.warning(
                "beside space %s, %d former files with damage are under its old key until they are removed",
                self.space_id,
                kept,
            )

    async def close(self) -> None:
        """Ends the indexing after its current batch and closes the database."""
        for part in reversed(self.parts):
            await unharmed(part.close(), "closing a part of a space")
        await self.records.close()
        await self.upkeep.close()
        await self.history.close()
        await self.duplicates.close()
        await self.indexer.close()
        await self.searcher.close()
        await self.usage.close()
        for part in reversed(self.parts):
            await unharmed(part.finish(), "finishing a part of a space")
        with contextlib.suppress(StorageError):
            await self.threads.maintain(mark_closed)
        await self.threads.close()

    async def _renew_foreign(self) -> int:
        """Has vectors computed anew that their model, which has another one's name, does not give; of how many that was seen."""
        for provider in self._providers:
            name = provider.name
            texts, vectors = await self.threads.examine(lambda store: model.sample(store, name))  # noqa: B023
            if await model.is_foreign(provider, texts, vectors):
                self.indexer.renew()
                return len(texts)
        return 0

    async def _cut_again(self) -> int:
        """Tries documents again that could not be cut; how many could be now."""
        cut_now = 0
        after: int | None = 0
        while after is not None:
            work = functools.partial(self.derivation.retry, after=after, limit=RETRIED)
            more, after = await self.threads.maintain(work)
            cut_now += more
        return cut_now

    def _mended(self, vectors_changed: bool) -> None:
        """Derived rows were put right: some may have to be made again, and vectors may no longer be those in memory."""
        if vectors_changed:
            self._scan.forget()
            self.searcher.forget()
        self.indexer.wake()

    async def status(self, projects: frozenset[str] | None) -> SpaceStatus:
        """How the space is; counts for the given projects only (None: all)."""
        return await self.threads.read(lambda store: self._status(store, projects))

    def _status(self, store: Store, projects: frozenset[str] | None) -> SpaceStatus:
        outlook = self.indexer.outlook()
        with store.reading():
            state = self.indexer.progress(store, outlook)
            sources = store.documents.counts(projects)
            held = holdings(store)
            total = state.total
            if projects is not None:
                # Who reaches some projects alone learns nothing of how much there is in others.
                total = sum(count.chunks for count in sources.values())
                held = [Held(one.generation, store.vectors.waiting_among(one.generation.id, projects)) for one in held]
                missing = {one.generation.id: one.missing for one in held}
                state = replace(state, total=total, done=total - missing.get(state.generation or 0, 0))
            live = live_generation(store)
            waited = store.vectors.oldest_waiting(live.id) if live is not None and state.done < total else None
            names = store.projects.names()
            size_bytes = store.size_bytes()
            clashes = store.documents.clashing(projects, limit=MAX_CLASHES)
        p50_ms, p95_ms = self.searcher.latencies()
        warnings = generations.warnings(self._providers, live)
        warnings += [*self.indexer.warnings(), *self.upkeep.warnings()]
        if self._held is not None:
            warnings += self._held.warnings()
        return SpaceStatus(
            space_id=self.space_id,
            files=sum(count.files for count in sources.values()),
            chunks=sum(count.chunks for count in sources.values()),
            sources=sources,
            projects=[name for name in names if projects is None or name in projects],
            provider=live.provider if live else None,
            model=live.model if live else None,
            dimensions=live.dimensions if live else None,
            embedder=self._providers[0].model.state,
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
            generations=generations.generation_status(held, state.generation if state.building else None, total),
            providers=[generations.provider_status(provider) for provider in self._providers],
            health=self.upkeep.health(),
        )

    async def queued(self, projects: frozenset[str]) -> int:
        """How many pieces of these projects wait for their vectors."""

        def work(store: Store) -> int:
            with store.reading():
                live = live_generation(store)
                if live is None:
                    return sum(count.chunks for count in store.documents.counts(projects).values())
                return store.vectors.waiting_among(live.id, projects)

        return await self.threads.read(work)

    async def wait_indexed(self, *, timeout_s: float, progress: Callable[[int, int], None] | None = None) -> bool:
        """Waits until every piece has its vector; False when that cannot be (no model, a failure) or takes longer than `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        has_retried = False
        rested_at = -1
        while True:
            state = await self.threads.read(self._progress)
            if progress is not None:
                progress(state.done, state.total)
            if state.complete:
                return True
            # At rest twice in a row, and in between: what was committed meanwhile was heard of by now, and did not wake it.
            moves = self.indexer.moves if self.is_at_rest else -1
            is_stuck = moves == rested_at >= 0
            left = deadline - time.monotonic()
            if is_stuck and (self.indexer.failure is not None or self.indexer.uncuttable) and not has_retried:
                # What stopped it may be over by now, as when room was made on the disk.
                has_retried, is_stuck, moves = True, False, -1
                if await self._cut_again():
                    self.upkeep.look()
                self.indexer.wake()
            if left <= 0 or is_stuck:
                return False
            rested_at = moves
            # A model that becomes ready wakes the indexer, which tells us; the cap is for a change missed between the two lines above.
            await self.indexer.wait_move(min(left, 0.25))

    def _progress(self, store: Store) -> Progress:
        outlook = self.indexer.outlook()
        with store.reading():
            return self.indexer.progress(store, outlook)

    async def rebuild(
        self,
        *,
        reembed: bool,
        progress: Callable[[int, int], None] | None = None,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> PieceChanges:
        """Cuts every document again; with `reembed` a new generation of vectors is built beside the live one as well.

        One transaction a document, so that others write meanwhile; cancelled, it ends between two.
        """
        documents = await self.threads.read(
            lambda store: [row.id for row in store.documents.listed(None) if not row.deleted]
        )
        added = kept = removed = 0
        for number, document in enumerate(documents):
            if is_cancelled():
                return PieceChanges(added, kept, removed)
            if progress is not None:
                progress(number, len(documents))
            one = await self.threads.write(lambda _store: self._writer.recut(document))  # noqa: B023 - awaited here
            added, kept, removed = added + one.added, kept + one.kept, removed + one.removed
        if reembed:
            self.indexer.renew()
        self.indexer.forgive()
        return PieceChanges(added, kept, removed)

    def part(self, kind: type[_Part]) -> _Part:
        """Return an add-on's part of this space. Raises LookupError: the add-on has none here."""
        for part in self.parts:
            if isinstance(part, kind):
                return part
        raise LookupError(f"{kind.__name__} is no part of this space")

    def refusal(self, session_id: str, op: str = "") -> RequestError | None:
        """Return why a session may not use the space now, as `SpacePart.refusal`."""
        return next((found for part in self.parts if (found := part.refusal(session_id, op)) is not None), None)

    def session_ended(self, session_id: str) -> None:
        """Let go of what a session had of the space."""
        for part in self.parts:
            part.session_ended(session_id)

    @property
    def lease(self) -> int | None:
        """The number of its lease; None: it has no log."""
        return None if self.outbox is None else self.outbox.lease

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is being indexed: all is done, or cannot be now."""
        return self.indexer.idle and not self.indexer.is_loading

    @property
    def is_held(self) -> bool:
        """Whether it must stay open though nobody uses it, since only an add-on's part knows of something (`SpacePart.is_held`)."""
        return any(part.is_held for part in self.parts)

    @property
    def has_file(self) -> bool:
        """Whether the file that it has open is still at its path."""
        return self.threads.has_file

    @property
    def waiting(self) -> int:
        """How many pieces wait for their vectors, as last seen by who makes them."""
        return self.indexer.waiting

    async def answer(self) -> None:
        """Return once its writer's thread is free, and alive."""
        await self.threads.answer()

    def ailments(self) -> set[str]:
        """What of it does not work as it should, in words that tell nothing of what it holds: storage, index, embedding."""
        state = self.upkeep.health().state
        is_lost = state == "damaged" or self.threads.refused is not None
        found = {"storage"} if is_lost else {"index"} if state == "healing" else set()
        if self.indexer.failure is not None or self.indexer.uncuttable:
            found.add("index")
        if all(one.condition in (Condition.DOWN, Condition.REFUSED) for one in self.indexer.standings()):
            found.add("embedding")
        return found


def _open_marked(
    path: Path, key: bytes, scan: VectorScan, damage: Damage, held: Lease | None
) -> tuple[Store, bool, list[int]]:
    """The writing store, whether whoever had it open last did not close it, and documents that others have changed meanwhile."""
    opened = None if held is None else held.bring(path, key)
    store = Store.open(path, key, writer=True, now=time.time(), scan=scan, damage=damage)
    try:
        if held is not None and opened is not None:
            held.join(store, opened)
        crashed = maintenance.open_marked(store, now=time.time())
        maintenance.note_restore(store, path.with_suffix(".restored"))
        if store.outbox is not None:
            store.outbox.flush()  # machines are told of this life of the database (PROTOCOL.md 9.2)
        return store, crashed, opened.documents if opened is not None else []
    except BaseException:
        store.close()
        raise
