"""An open space: documents, their revisions and their index, behind an asynchronous interface.

One thread writes, a few read. All disk access and computation runs on those threads. A document,
its revision, its chunks and its keyword rows are committed in one transaction, so its words are
searchable when `put` returns. Vectors follow in the background.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from confide_crypto.errors import RequestError
from confide_crypto.sealing.roster import Roster
from confide_daemon.datadir.disk import Disk
from confide_daemon.documents.action_notes import ActionNotes
from confide_daemon.documents.document_history import DELETED_DAYS, DocumentHistory
from confide_daemon.documents.document_listing import Listing
from confide_daemon.documents.document_service import Documents, DocumentUsage, Projects, Transcripts
from confide_daemon.documents.writer import Writer
from confide_daemon.embedding import LoadedModel
from confide_daemon.errors import DamagedError
from confide_daemon.notes.duplicates import Duplicates
from confide_daemon.notes.note_service import Notes
from confide_daemon.retrieval.indexing import generations
from confide_daemon.retrieval.indexing.generations import (
    GenerationGap,
    GenerationStatus,
    ProviderStatus,
    holdings,
    live_generation,
)
from confide_daemon.sealing.records import SealedRecords
from confide_daemon.sealing.vault import Vault
from confide_daemon.sealing.vault_records import VaultRecords
from confide_daemon.spaces.file import SpaceFile
from confide_daemon.spaces.index import Index
from confide_daemon.spaces.maintenance import MaintenanceTurns, SpaceHealth, Upkeep
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.part import SpacePart, run_safely
from confide_daemon.spaces.space_forgetting import Forgetting
from confide_daemon.store.database import ReplicationOutbox
from confide_daemon.store.logs import Lease
from confide_daemon.store.page_budget import PageBudget
from confide_daemon.store.quota import UNLIMITED, Quota
from confide_daemon.store.rows import PieceChanges, SourceCount
from confide_daemon.store.space_store import Store
from confide_daemon.store.upkeep import salvage

log = logging.getLogger(__name__)

_Part = TypeVar("_Part", bound=SpacePart)


# Limit of reported conflicts, so that a status stays small.
MAX_CLASHES = 21


@dataclass(frozen=True, slots=True)
class Clash:
    """A document whose newest text contains a conflict: two versions of the same lines."""

    project: str
    path: str
    revision: int


@dataclass(frozen=True, slots=True)
class SpaceStatus:
    """The status of a space. Counts cover only the requested projects; queue, model and size are
    for the whole space.
    """

    space_id: str
    files: int
    chunks: int
    sources: dict[str, SourceCount]
    projects: list[str]
    provider: str | None
    model: str | None
    dimensions: int | None
    embedder: str  # loading, ready, failed
    queued_pieces: int  # pieces that wait for their vectors
    index_age_s: float  # how long the oldest of them has waited
    reembedding: tuple[int, int, int] | None  # (generation, done, total) while a new one is built
    size_bytes: int | None  # None: withheld
    at_rest: str
    search_p50_ms: float | None
    search_p95_ms: float | None
    warnings: list[str]
    clashes: list[Clash]  # the first MAX_CLASHES
    generations: list[GenerationStatus] = field(default_factory=list)
    providers: list[ProviderStatus] = field(default_factory=list)  # the wanted one first
    health: SpaceHealth = field(default_factory=lambda: SpaceHealth("ok", [], 0))


@dataclass(frozen=True, slots=True)
class SpaceShared:
    """Settings and resources that all spaces of a daemon share.

    Attributes:
        settings: settings for chunks, embedding and search.
        embedder: the embedding models, the preferred one first; each other one is a fallback while
            those before it are unavailable.
        deleted_days: days for which a deleted document can be restored.
        quota: the size limits of each space.
        clock: returns the time in seconds since 1970, for the removal of deleted documents and for
            the month of a budget.
        vault: the external store of new sealed records; None: they are stored in the databases.
        pages: the memory budget for all page caches.
        disk: checked before writes that can wait; None: each space checks the disk of its own
            folder.
        turns: schedules the spaces' maintenance.
        parts: functions that create the add-ons' state in each space.
    """

    settings: IndexSettings
    embedder: LoadedModel | Sequence[LoadedModel]
    deleted_days: int = DELETED_DAYS
    quota: Quota = UNLIMITED
    clock: Callable[[], float] = time.time
    vault: Vault | None = None
    pages: PageBudget = field(default_factory=PageBudget)
    disk: Disk | None = None
    turns: MaintenanceTurns = field(default_factory=MaintenanceTurns)
    parts: Sequence[Callable[[Space], Iterable[SpacePart]]] = ()

    @property
    def models(self) -> Sequence[LoadedModel]:
        """The embedding models, the preferred one first."""
        return [self.embedder] if isinstance(self.embedder, LoadedModel) else self.embedder


class SpaceHost:
    """The source of facts that an open space does not know itself. The pool overrides the methods;
    by default all facts are unknown.
    """

    def roster(self, _space_id: str) -> Roster | None:
        """Return the current roster of the space, the list of its devices, or None. Signed task
        orders count only from devices on it. Blocks on the disk.
        """
        return None

    def around(self, _space_id: str) -> tuple[int | None, bool | None]:
        """Return the number of credentials stored in clear (None: unknown), and True if a verified
        backup exists (None: unknown). May block.
        """
        return None, None


class Space:
    """An open space. Create it with `Space.open`, end it with `close`."""

    def __init__(self, space_id: str, file: SpaceFile, shared: SpaceShared, disk: Disk, host: SpaceHost) -> None:
        self.space_id = space_id
        self.clock = clock = shared.clock
        self.file = file
        self.threads = threads = file.threads
        self.parts: list[SpacePart] = []
        self._host = host
        self.index = index = Index(file, shared.settings, shared.models, disk, clock)
        self._writer = Writer(file.store, index.derivation.judge)
        self.documents = Documents(threads, self._writer, index.indexer)
        self.transcripts = Transcripts(threads, index.indexer)
        self.listing = Listing(threads)
        self.actions = ActionNotes(threads)
        self.history = DocumentHistory(threads, deleted_days=shared.deleted_days, clock=clock)
        self.projects = Projects(threads)
        vault = shared.vault
        self.records = SealedRecords(threads, clock) if vault is None else VaultRecords(threads, vault, space_id, clock)
        self.usage = DocumentUsage(threads, clock)
        similarity = shared.settings.duplicate_similarity
        self.duplicates = Duplicates(threads, index.indexer, index.searcher, similarity)
        self.notes = Notes(threads, self._writer, self.documents)
        self.forgetting = Forgetting(threads, self._writer, index, file.store.path)
        self.upkeep = Upkeep(file, index, disk, shared.turns, clock=clock)

    @classmethod
    async def open(
        cls,
        path: Path,
        key: bytes,
        shared: SpaceShared,
        *,
        space_id: str,
        host: SpaceHost | None = None,
        held: Lease | None = None,
        is_known: bool = False,
    ) -> Space:
        """Open the space, creating a missing file, and start indexing and maintenance.

        Args:
            path: the database file; its folder must exist.
            key: 32 bytes.
            held: the right to write to the space's log in the shared store; None: there is no log.
            is_known: True if devices have used the space before, so that a missing or empty file is
                recorded as a loss.

        Raises StorageError if the key is wrong, the file is damaged beyond repair or not writable,
        a newer version wrote it, or the disk is full.
        """
        begin = partial(cls._begin, path, key, shared, space_id, host or SpaceHost(), held)
        is_missing = is_known and held is None and not _has_data(path)
        try:
            space = await begin()
        except DamagedError:
            if held is not None:
                # The log is complete, while the readable part of this file may not be.
                await asyncio.to_thread(held.discard, path)
                return await begin()
            # A part that opening needs is damaged. The maintenance finds all other damage.
            lost = await asyncio.to_thread(salvage.salvage, path, key)
            log.warning("the database was rebuilt from what could be read of it; the damaged file is kept beside it")
            space = await begin()
            await space.upkeep.record_salvage(lost)
            return space
        if is_missing:
            log.error("the database file of space %s was missing or empty: a new one was made", space_id)
            await space.upkeep.record_loss()
        return space

    @classmethod
    async def _begin(
        cls, path: Path, key: bytes, shared: SpaceShared, space_id: str, host: SpaceHost, held: Lease | None
    ) -> Space:
        file = await SpaceFile.open(path, key, held, quota=shared.quota, pages=shared.pages)
        try:
            space = cls(space_id, file, shared, shared.disk or Disk(path.parent), host)
            await space.projects.open()
            for make in shared.parts:
                space.parts.extend(make(space))
            for part in space.parts:
                await part.open()
            await space.index.open()
            await space.forgetting.open()
        except BaseException:
            await file.threads.close()
            raise
        space._start()
        return space

    def _start(self) -> None:
        """Start the background work."""
        self.index.indexer.start()
        self.history.start()
        self.upkeep.start()
        self.records.start()
        self.forgetting.start()
        for part in self.parts:
            part.start()

    def roster(self) -> Roster | None:
        """Return the current roster of the space, the list of its devices, or None. Signed task
        orders count only from devices on it. Blocks on the disk.
        """
        return self._host.roster(self.space_id)

    def around(self) -> tuple[int | None, bool | None]:
        """Return the number of credentials stored in clear (None: unknown), and True if a verified
        backup exists (None: unknown).
        """
        return self._host.around(self.space_id)

    @property
    def outbox(self) -> ReplicationOutbox | None:
        """The object that sends writes to the space's log in the shared store before they are
        committed here; None if there is no log.
        """
        return self.file.store.outbox

    async def rekey(
        self,
        key: bytes,
        *,
        follow: Callable[[int, int], None] = lambda _done, _total: None,
        custody: dict[str, object] | None = None,
    ) -> None:
        """Re-encrypt the database with this key (32 bytes) while the space stays in use.

        Args:
            follow: receives the number of copied pages and the total.
            custody: the custody record of the new key, for the space's log in a shared store.

        Raises StorageError if the disk is full or fails, or another process reads the file; the old
        key stays in force then.
        """
        if self.outbox is not None:
            self.outbox.custody = custody
        await self.threads.change_key(key, follow)
        if kept := await self.threads.read(lambda store: salvage.count_damaged_copies(store.path)):
            log.warning(
                "beside space %s, %d former files with damage are under its old key until they are removed",
                self.space_id,
                kept,
            )

    async def close(self) -> None:
        """Stop indexing after the current batch, and close the database."""
        for part in reversed(self.parts):
            await run_safely(part.close(), "closing a part of a space")
        await self.forgetting.close()
        await self.records.close()
        await self.upkeep.close()
        await self.history.close()
        await self.duplicates.close()
        await self.index.close()
        await self.usage.close()
        for part in reversed(self.parts):
            await run_safely(part.finish(), "finishing a part of a space")
        await self.file.close()

    async def status(self, projects: frozenset[str] | None) -> SpaceStatus:
        """Return the status of the space, with counts for the given projects only (None: all)."""
        return await self.threads.read(lambda store: self._status(store, projects))

    def _status(self, store: Store, projects: frozenset[str] | None) -> SpaceStatus:
        outlook = self.index.indexer.outlook()
        with store.reading():
            state = self.index.indexer.progress(store, outlook)
            sources = store.documents.counts(projects)
            held = holdings(store)
            total = state.total
            if projects is not None:
                # A caller who reaches some projects only must not learn the size of others.
                total = sum(count.chunks for count in sources.values())
                held = [
                    GenerationGap(one.generation, store.vectors.waiting_among(one.generation.id, projects))
                    for one in held
                ]
                missing = {one.generation.id: one.missing for one in held}
                state = replace(state, total=total, done=total - missing.get(state.generation or 0, 0))
            live = live_generation(store)
            waited = store.vectors.oldest_waiting(live.id) if live is not None and state.done < total else None
            names = store.projects.names()
            size_bytes = store.size_bytes()
            clashes = store.documents.clashing(projects, limit=MAX_CLASHES)
        p50_ms, p95_ms = self.index.searcher.latencies()
        warnings = generations.warnings(self.index.providers, live)
        warnings += [*self.index.indexer.warnings(), *self.upkeep.warnings()]
        if self.file.lease is not None:
            warnings += self.file.lease.warnings()
        return SpaceStatus(
            space_id=self.space_id,
            files=sum(count.files for count in sources.values()),
            chunks=sum(count.chunks for count in sources.values()),
            sources=sources,
            projects=[name for name in names if projects is None or name in projects],
            provider=live.provider if live else None,
            model=live.model if live else None,
            dimensions=live.dimensions if live else None,
            embedder=self.index.providers[0].model.state,
            queued_pieces=state.total - state.done,
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
            providers=[
                generations.provider_status(provider)
                for provider in self.index.providers
                if not provider.model.is_aside
            ],
            health=self.upkeep.health(),
        )

    async def wait_indexed(self, *, timeout_s: float, progress: Callable[[int, int], None] | None = None) -> bool:
        """Wait until every chunk has a vector. Return False after `timeout_s`, or as soon as that
        is impossible, as without a model.
        """
        deadline = time.monotonic() + timeout_s
        has_retried = False
        rested_at = -1
        while True:
            state = await self.threads.read(self.index.progress)
            if progress is not None:
                progress(state.done, state.total)
            if state.complete:
                return True
            # At rest at two checks without any step between: the indexer knew of all commits by
            # then and had nothing to do.
            moves = self.index.indexer.moves if self.is_at_rest else -1
            is_stuck = moves == rested_at >= 0
            left = deadline - time.monotonic()
            if is_stuck and self.index.is_broken and not has_retried:
                # The cause may be over by now, as when room was made on the disk.
                has_retried, is_stuck, moves = True, False, -1
                if await self.index.cut_again():
                    self.upkeep.look()
                self.index.indexer.wake()
            if left <= 0 or is_stuck:
                return False
            rested_at = moves
            # A model that becomes ready wakes the indexer, which wakes this. The cap covers a
            # change missed between the two lines above.
            await self.index.indexer.wait_move(min(left, 0.25))

    async def rebuild(
        self,
        *,
        reembed: bool,
        progress: Callable[[int, int], None] | None = None,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> PieceChanges:
        """Cut every document into chunks again. `reembed`: also compute all vectors again in a
        second generation, while the present one still serves searches.

        Each document has its own transaction, so that other writes continue. A cancellation takes
        effect between two documents.
        """
        documents = await self.threads.read(
            lambda store: [row.id for row in store.documents.list_documents(None) if not row.deleted]
        )
        added = kept = removed = 0
        for number, document in enumerate(documents):
            if is_cancelled():
                return PieceChanges(added, kept, removed)
            if progress is not None:
                progress(number, len(documents))
            one = await self.threads.write(lambda _store: self._writer.recut(document))  # noqa: B023 - awaited here
            added, kept, removed = added + one.added_pieces, kept + one.kept_pieces, removed + one.removed_pieces
        if reembed:
            self.index.indexer.renew()
        self.index.indexer.forgive()
        return PieceChanges(added, kept, removed)

    def part(self, kind: type[_Part]) -> _Part:
        """Return the state that an add-on keeps in this space, by its class. Raises LookupError if
        the add-on has none here.
        """
        for part in self.parts:
            if isinstance(part, kind):
                return part
        raise LookupError(f"{kind.__name__} is no part of this space")

    def refusal(self, session_id: str, op: str = "") -> RequestError | None:
        """Return why a session may not use the space now, or None if it may. `op`: the name of the
        request; "" for a tool call.
        """
        return next((found for part in self.parts if (found := part.refusal(session_id, op)) is not None), None)

    def on_session_end(self, session_id: str) -> None:
        """Release everything that belongs to a session which has ended."""
        for part in self.parts:
            part.on_session_end(session_id)

    @property
    def lease(self) -> int | None:
        """The number of this node's lease (its right to write) on the space's log, or None if there
        is no log.
        """
        return None if self.outbox is None else self.outbox.lease

    @property
    def is_at_rest(self) -> bool:
        """True if nothing is being indexed: all documents are done, or no progress is possible now."""
        return self.index.is_at_rest

    @property
    def is_held(self) -> bool:
        """True if the space must stay open even without users, because an add-on has state in
        memory only (`SpacePart.is_held`).
        """
        return any(part.is_held for part in self.parts)

    @property
    def has_file(self) -> bool:
        """True if a file exists at the path of the open database, even if it is another file."""
        return self.threads.has_file

    @property
    def waiting(self) -> int:
        """The number of chunks that still wait for a vector, as the indexer last counted them."""
        return self.index.indexer.waiting

    async def answer(self) -> None:
        """Return once the writer's thread has answered, which proves that it is not stuck."""
        await self.threads.answer()

    def health_problems(self) -> set[str]:
        """Return the health problems as words that reveal no content: `storage`, `index`,
        `embedding`.
        """
        state = self.upkeep.health().state
        is_lost = state == "damaged" or self.threads.write_error is not None
        found = {"storage"} if is_lost else {"index"} if state == "healing" else set()
        if self.index.is_broken:
            found.add("index")
        if self.index.is_without_model:
            found.add("embedding")
        return found


def _has_data(path: Path) -> bool:
    """Return True if a database has a file with something in it, or a log that was not copied into
    it yet. A file that was cut off to nothing is a valid, empty database to SQLite.
    """
    for file in (path, path.with_name(f"{path.name}-wal")):
        with suppress(OSError):
            if file.stat().st_size:
                return True
    return False
