"""Keeps derived rows up to date with the documents, in the background: chunks after a change of
settings, and vectors.

The queue consists of the chunks that lack a vector in a generation (one model's set of vectors). It
is not stored separately, so a crash can neither lose nor repeat any of it. After every step the
indexer decides again which generation serves searches and which are filled (`generations`). Each
generation that lacks vectors is filled by a task of its own, so that a slow provider does not delay
a fast one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from confide_crypto import heaps
from confide_crypto.errors import ConfideError
from confide_daemon.config import ChunkSettings
from confide_daemon.datadir.disk import Disk
from confide_daemon.documents import provenance
from confide_daemon.errors import DamagedError, EmbedderError
from confide_daemon.retrieval.chunker import MARK, cut
from confide_daemon.retrieval.indexing.backfill import YET_TO_COME, Filling
from confide_daemon.retrieval.indexing.generations import (
    GenerationGap,
    GenerationPlan,
    Patience,
    decide,
    holdings,
    live_generation,
    successor,
)
from confide_daemon.retrieval.indexing.indexed_model import (
    BudgetedModel,
    Condition,
    ModelStatus,
    MonthlyBudget,
    in_thread,
)
from confide_daemon.store.rows import DocumentRow, Piece, PieceChanges, WaitingPiece
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.document_tables import UNCUTTABLE
from confide_daemon.store.tables.pieces import Generation, piece_hash
from confide_daemon.store.threads import StoreThreads
from confide_memory import mentions, note, note_names
from confide_memory.documents import is_log, is_note
from confide_memory.front_matter import split
from confide_memory.note import Note
from confide_memory.tools.foreign import is_foreign
from confide_memory.tools.written_days import StatedDay, days_of_chunk, stated_day, year_of_path

log = logging.getLogger(__name__)


class Derivation:
    """Updates the rows that are derived from a document's text, within a write transaction.

    Those rows are the chunks, their extra search words, the fields of notes, and mentions of other
    documents.
    """

    def __init__(self, chunks: ChunkSettings) -> None:
        self.chunks = chunks
        self.chunking = chunks.name

    def keep(self, store: Store, row: DocumentRow, text: str | None, now: float) -> PieceChanges:
        """Update the derived rows of a document for its new text. None as the text means that the
        document was deleted; its rows are then deleted too.
        """
        return self.judge(store, row, text, now)()

    def judge(self, store: Store, row: DocumentRow, text: str | None, now: float) -> Callable[[], PieceChanges]:
        """Store the provenance of a document's new text, which cannot be derived again later.
        Return a function that updates the derived rows as `keep` does.
        """
        judged = None if text is None else provenance.judge(store, row, text)
        return lambda: self._make(store, row, text, judged, now)

    def _make(
        self, store: Store, row: DocumentRow, text: str | None, judged: provenance.Judged | None, now: float
    ) -> PieceChanges:
        found = note.read(row.project, row.path, text) if text is not None and is_note(row.path) else None
        pieces = (
            []
            if text is None or judged is None
            else _mark_doubted(self._pieces(row, text, found), judged, is_log=is_log(row.path))
        )
        stated = stated_day(row.path, text or "")
        if row.source == "memory":
            pieces = _add_days(pieces, row.path, stated)
        words = "" if found is None else found.words
        changes = store.pieces.replace(row, pieces, chunking=self.chunking, now=now, words=words)
        store.documents.date(row, stated, pieces)
        if is_note(row.path):
            store.notes.replace(row, found, now=now)
        if row.source == "memory":
            store.mentions.replace(row, None if text is None else mentions.read(row.path, text))
        return changes

    def follow(self, store: Store, row: DocumentRow, text: str | None, now: float) -> bool:
        """Update the derived rows of a document for its stored text, in a transaction of its own.
        Return True, or False if the text cannot be divided into chunks.

        Such a failure is recorded and tried again by the space's maintenance, so that one text does
        not block the index of all others. Raises ConfideError if the database cannot be written.
        """
        try:
            with store.writing_derived():
                self.keep(store, row, text, now)
        except ConfideError:
            raise
        except Exception as error:
            # A bug in Confide. Log only its type, since its text may quote the document.
            why = type(error).__name__
            if row.chunking == f"{UNCUTTABLE}{why}":
                return False  # for the same reason as before
            log.error("document %d cannot be cut (%s): what is new in it is not found", row.id, why)
            with store.writing_derived():
                if not store.documents.has_own_pieces(row.id):
                    # The old chunks may hold text that was removed, such as a credential that is
                    # sealed now.
                    self._make(store, row, None, None, now)
                store.documents.note_uncuttable(row.id, why)
            return False
        return True

    def follow_all(self, store: Store, documents: Sequence[int]) -> None:
        """Update the derived rows of these documents after another node has changed them."""
        now = time.time()
        for row in store.documents.by_id(documents):
            revision = None if row.deleted else store.documents.revision(row.id, row.revision)
            self.follow(store, row, revision.text if revision is not None else None, now)

    def retry(self, store: Store, *, after: int, limit: int) -> tuple[int, int | None]:
        """Try again to divide some documents into chunks that could not be divided before, from the
        id after `after`. Return how many succeeded, and the id after which to continue, or None if
        there are no more.

        Raises ConfideError if the database cannot be written.
        """
        found = store.documents.uncuttable(after=after, limit=limit)
        cut_now = 0
        for row in found:
            text = _newest_text(store, row)
            cut_now += text is not None and self.follow(store, row, text, time.time())
        return cut_now, found[-1].id if len(found) == limit else None

    def extend(self, store: Store, row: DocumentRow, before: str, added: str, now: float) -> None:
        """Add chunks for text that was appended to a transcript. The new text begins with a
        heading, so the earlier chunks stay as they are.

        `row` is the document's current row. `before` is the text before the change, which begins
        with a title.
        """
        if row.chunking == self.chunking:
            title = before.split("\n", 1)[0].removeprefix("# ")
            pieces = self._below(added, before.count("\n"), title)
            # All chunks of a transcript are untrusted, as the document is.
            store.pieces.add(row, [replace(piece, doubted=False) for piece in pieces], now=now)

    def cut(self, row: DocumentRow, text: str) -> list[Piece]:
        """Return the chunks of a document's text, without regard to who wrote it."""
        return self._pieces(row, text, note.read(row.project, row.path, text) if is_note(row.path) else None)

    def _pieces(self, row: DocumentRow, text: str, found: Note | None) -> list[Piece]:
        """Cut a document. A note is cut without its front matter, and its title is put above all of
        its headings.
        """
        head, body = split(text) if found is not None else ("", text)
        if found is None or not body.strip():
            return cut(text, self.chunks, is_log=is_log(row.path))
        # A title equal to the text's first words would repeat them in each chunk, which costs two
        # points of recall@1 on notes without titles.
        return self._below(
            body, head.count("\n"), "" if found.title == note_names.title_of(found.body) else found.title
        )

    def _below(self, text: str, lines: int, title: str) -> list[Piece]:
        """Return the chunks of a text that follows `lines` lines of front matter and this title."""
        return [
            replace(
                piece,
                start_line=piece.start_line + lines,
                end_line=piece.end_line + lines,
                heading=_heading_below(title, piece.heading),
                above=tuple(line + lines for line in piece.above),
            )
            for piece in cut(text, self.chunks)
        ]


def _mark_doubted(pieces: Sequence[Piece], judged: provenance.Judged, *, is_log: bool = False) -> list[Piece]:
    """Return the chunks, each marked as doubted if it or a line that its heading quotes is
    untrusted. In a log (`is_log`) it is also doubted beside a doubted paragraph: one text may have
    been stored as several.
    """
    if not judged.doubted_lines:
        return [replace(piece, doubted=False) for piece in pieces]

    def is_doubted(piece: Piece) -> bool:
        return judged.holds(piece.start_line, piece.end_line) or any(judged.holds(one, one) for one in piece.above)

    doubted = [is_doubted(piece) for piece in pieces]
    if is_log:
        spreads = [one and not MARK.match(piece.text) for one, piece in zip(doubted, pieces, strict=True)]
        doubted = [any(spreads[max(0, at - 1) : at + 2]) or one for at, one in enumerate(doubted)]
    return [replace(piece, doubted=one) for piece, one in zip(pieces, doubted, strict=True)]


def _add_days(pieces: Sequence[Piece], path: str, stated: StatedDay | None) -> list[Piece]:
    """Return the chunks, each with the days that it states, or those of the document (`stated`)."""
    around = stated.span if stated else year_of_path(path)
    usual = stated.span if stated and stated.moment is None else None
    found = []
    for piece in pieces:
        span = days_of_chunk(piece.heading, piece.text, around) or usual
        days = None if span is None else (span.first.isoformat(), span.last.isoformat())
        found.append(piece if days is None else replace(piece, days=days))
    return found


def _heading_below(title: str, heading: str) -> str:
    return heading if not title or heading.split(" > ", 1)[0] == title else f"{title} > {heading}" if heading else title


T = TypeVar("T")

# Documents cut again in one transaction after a change of settings.
RECUT = 8
# Stands in place of a model for the task that does so.
RECUTTING = -1
# Vectors removed in one transaction from a generation that is dropped: some 20 ms.
RETIRED = 1000
# Time after a database failure (disk full) until the work is tried again by itself.
RETRY_S = 30.0
# How often to check a model that is down while another could replace it, and how often to check for
# a new month.
OUTAGE_LOOK_S = 10.0
CALENDAR_LOOK_S = 3600.0
SHORTEST_PAUSE_S = 0.05
# Changes are answered before they are embedded, and changes in quick succession are embedded in one
# call.
SETTLE_S = 0.05
# `close` waits this long for calls in progress; later results are embedded again after the next
# start.
CLOSE_S = 5.0
# Chunks embedded after which an idle indexer gives back the memory that they needed: the C library
# would keep it.
LARGE_FILL = 500
# Most decisions in a row: one may lead to another (drop, add, fill, swap), but not for ever.
DECISIONS = 8
# Documents that could not be cut and are tried again in one write.
RETRIED = 8
_UNCUTTABLE = "what is new in them is not found; it is tried again every ten minutes, and their texts are whole"
# The warning that searches and the status show.
NO_ROOM = (
    "little room is left on the daemon's disk: indexing waits for more, and what is new is found by its words alone"
)


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """How many chunks have vectors. This refers to the generation (one model's set of vectors) that
    is being built, if any, else to the live one.
    """

    done: int
    total: int
    generation: int | None
    building: bool
    complete: bool = False  # the right model serves, and no work is left


@dataclass(frozen=True, slots=True)
class IndexTarget:
    """The goal of the indexer: the status of the models, and `renewing`, which is True if a new
    generation was requested and is not begun yet.
    """

    renewing: bool
    models: list[ModelStatus]


class Indexer:
    """Updates the index of one space in the background."""

    def __init__(
        self,
        threads: StoreThreads,
        providers: Sequence[BudgetedModel],
        budget: MonthlyBudget,
        derivation: Derivation,
        patience: Patience,
        disk: Disk,
    ) -> None:
        """`providers`: the wanted model first. `disk`: indexing pauses while it is low."""
        self._threads = threads
        self.providers = list(providers)
        self.budget = budget
        self.derivation = derivation
        self._patience = patience
        self._disk = disk
        self._wake = asyncio.Event()
        self._settling: asyncio.TimerHandle | None = None
        self._moved = asyncio.Condition()
        self._closing = False
        self._renew = False
        self._is_aside_wanted = False
        self._filling: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._plan = GenerationPlan()
        self._lacking: set[str] = set()  # generation names that chunks wait for
        self._held_back = False  # after a failure, until the next retry
        self._task: asyncio.Task[None] | None = None
        self._ready: Callable[[], None] | None = None
        self.failure: ConfideError | None = None
        self._has_put_off = False
        self.waits_for_room = False  # work is paused until the disk has free space
        self.uncuttable: dict[str, int] = {}  # number of documents that cannot be cut, by reason
        self.waiting = 0  # chunks without a vector of the live model, as last seen
        self.idle = False  # no work that can be done now
        self.computed_pieces = 0  # chunks embedded since the start
        self._computed_at_release = 0  # `computed_pieces` when memory was last given back
        self.moves = 0  # count of index steps and of times the indexer became idle

    def start(self) -> None:
        """Start the background task. It resumes by itself when a model becomes ready."""
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._run(), name="confide-index")

        def ready() -> None:
            # The event loop may end before the model is loaded.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self.wake)

        for provider in self.providers:
            provider.model.on_settled(ready)
        self._ready = ready
        self._disk.listen(self.wake)
        self.wake()

    def wake(self) -> None:
        """Start the indexer's work now, or retry it."""
        self.idle = False
        self._held_back = False
        self._wake.set()

    def note_change(self) -> None:
        """Notify the indexer that documents have changed. It begins its work SETTLE_S later."""
        self.idle = False
        if self._settling is None:
            self._settling = asyncio.get_running_loop().call_later(SETTLE_S, self._on_settled)

    def _on_settled(self) -> None:
        self._settling = None
        self.wake()

    async def close(self) -> None:
        """Finish the current write and stop. Model calls that take longer than CLOSE_S are
        cancelled.
        """
        self._closing = True
        self._disk.forget(self.wake)
        if self._ready is not None:
            for provider in self.providers:
                provider.model.call_no_longer(self._ready)
        if self._settling is not None:
            self._settling.cancel()
        self._wake.set()
        if self._task is not None:
            await self._task
        if self._filling:
            tasks = list(self._filling.values())
            _, late = await asyncio.wait(tasks, timeout=CLOSE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def wait_move(self, timeout_s: float) -> None:
        """Wait until the indexer has indexed something or has no more work, for at most
        `timeout_s`.
        """
        async with self._moved:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._moved.wait()

    def renew(self) -> None:
        """Request that all vectors are computed again with the same model."""
        self._renew = True
        self.forgive()

    def forgive(self) -> None:
        """Use models again that have refused or could not be loaded, because a user requested the
        work.
        """
        for provider in self.providers:
            provider.forgive()
        self.wake()

    @property
    def aside(self) -> BudgetedModel | None:
        """The multilingual model, for texts and queries that are not English; None if there is
        none.
        """
        return next((provider for provider in self.providers if provider.model.is_aside), None)

    def want_aside(self) -> None:
        """Request vectors by the multilingual model for this space, because there is a text or a
        query that needs them. They are kept from then on.
        """
        if self.aside is not None and not self._is_aside_wanted:
            self._is_aside_wanted = True
            self.wake()

    def _look_at(self, texts: Sequence[str]) -> None:
        if self.aside is not None and not self._is_aside_wanted and any(is_foreign(text, fewest=2) for text in texts):
            self.want_aside()

    @property
    def is_loading(self) -> bool:
        return any(provider.model.state == "loading" for provider in self.providers)

    def warnings(self) -> list[str]:
        """Return the warnings about the index that searches show."""
        said = [] if self.failure is None else [f"indexing has stopped: {self.failure}"]
        if self.uncuttable:
            why = ", ".join(f"{count} {reason}" for reason, count in sorted(self.uncuttable.items()))
            said.append(f"documents that cannot be cut: {why}; {_UNCUTTABLE}")
        if self.waits_for_room:
            said.append(NO_ROOM)
        return said

    def standings(self) -> list[ModelStatus]:
        """Return the status of the models, with the wanted one first."""
        return [provider.standing() for provider in self.providers]

    def outlook(self) -> IndexTarget:
        """Return the indexer's current goal. Call it before opening the snapshot of the store for
        `progress`, which must not be older.
        """
        return IndexTarget(self._renew, self.standings())

    def progress(self, store: Store, outlook: IndexTarget) -> IndexProgress:
        """Return how many chunks have vectors. Call within one snapshot of the store."""
        renewing, models = outlook.renewing, outlook.models
        held = holdings(store)
        total = store.pieces.count()
        live = next((one for one in held if one.generation.live), None)
        plan = decide(held, models, renew=renewing, patience=self._patience)
        names = [model.name for model in models]
        # While it is undecided which model should serve, progress refers to the wanted one.
        towards = names[0 if plan.target is None else plan.target]
        building = successor(held, towards)
        current = building or live
        if current is None:
            return IndexProgress(0, total, None, building=False)
        complete = (
            live is not None
            and live.missing == 0
            and live.generation.name in (names[0], towards)
            and not renewing
            and building is None
            and not store.documents.documents_to_cut(self.derivation.chunking, limit=1)
            and not store.documents.count_uncuttable()
        )
        done = total - current.missing
        return IndexProgress(done, total, current.generation.id, building=building is not None, complete=complete)

    async def _run(self) -> None:
        while not self._closing:
            self._wake.clear()
            self._has_put_off = False
            with self._watch():
                while not self._closing and await self._threads.write(self._recut) > 0:
                    await self._tell()
                await self._decide()
            self.waits_for_room = self._has_put_off
            self.idle = not (self._wake.is_set() or self._filling or self._settling)
            await self._tell()
            if self.idle and self.computed_pieces - self._computed_at_release >= LARGE_FILL:
                self._computed_at_release = self.computed_pieces
                await in_thread(heaps.give_back)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self._wake.wait()
            if not self._wake.is_set():
                self._held_back = False
        self._plan = GenerationPlan()

    async def _decide(self) -> None:
        models = self.standings()
        plan = await self._threads.write(lambda store: self._apply(store, models))
        assert isinstance(plan, GenerationPlan)
        self._plan = plan
        if self._held_back:
            return
        if not plan.fill:
            self.failure = None
        await self._start_recut(models)
        if plan.drop:
            await self._threads.write(lambda store: self._retire(store, plan.drop[0]))
            self._wake.set()
        for place in plan.probe:
            self._start((0, place), self._probe(self.providers[place]))
        for generation, place in plan.fill:
            if (generation, place) not in self._filling:
                self._start((generation, place), self._fill(generation, place))

    async def _start_recut(self, models: Sequence[ModelStatus]) -> None:
        """Begin to cut documents otherwise whose vectors answer searches, if the model can embed."""
        chunking = self.derivation.chunking

        def read(store: Store) -> tuple[Generation, int] | None:
            return _serving(store, models) if store.documents.documents_to_cut(chunking, limit=1) else None

        serving = await self._threads.write(read)
        if serving is None:
            return
        generation, place = serving
        self._lacking.add(generation.name)
        if not self._disk.has_room_for("vectors"):
            self._has_put_off = True
        elif (
            models[place].name == generation.name
            and models[place].can_embed
            and (generation.id, RECUTTING) not in self._filling
        ):
            self._start((generation.id, RECUTTING), self._recut_ahead(generation, place))

    def _apply(self, store: Store, models: Sequence[ModelStatus]) -> GenerationPlan:
        """Add and swap generations until nothing more has to change; return the plan with the
        generations to fill.
        """
        plan = GenerationPlan()
        for _ in range(DECISIONS):
            held = holdings(store)
            self._lacking = {one.generation.name for one in held if one.missing}
            self.waiting = self._waiting(store, held, models)
            self.uncuttable = store.documents.count_uncuttable()
            plan = self._postpone(
                decide(
                    held,
                    models,
                    renew=self._renew,
                    patience=self._patience,
                    is_aside_wanted=self._is_aside_wanted,
                )
            )
            if not plan.changes:
                break
            now = time.time()
            with store.writing():
                if plan.add is not None:
                    embedder = self.providers[plan.add].model.embedder
                    assert embedder is not None
                    store.vectors.add_generation(
                        embedder.id, embedder.model, embedder.dimensions, live=plan.add_live, now=now, fresh=self._renew
                    )
                if plan.swap is not None:
                    store.vectors.make_live(plan.swap, now=now, keep=True)
            if plan.add is not None and not models[plan.add].is_aside:
                self._renew = False
        return plan

    def _postpone(self, plan: GenerationPlan) -> GenerationPlan:
        """Remove from the plan what would fill a disk with little free space; dropping and swapping
        generations goes on.
        """
        may_add = plan.add is None or self._disk.has_room_for("generations")
        may_fill = not plan.fill or self._disk.has_room_for("vectors")
        self._has_put_off = self._has_put_off or not (may_add and may_fill)
        return replace(plan, add=plan.add if may_add else None, fill=plan.fill if may_fill else ())

    def _waiting(self, store: Store, held: Sequence[GenerationGap], models: Sequence[ModelStatus]) -> int:
        live = next((one for one in held if one.generation.live), None)
        if live is not None:
            return live.missing
        # Without a usable model no chunk is waiting.
        return 0 if all(one.condition is Condition.REFUSED for one in models) else store.pieces.count()

    def _retire(self, store: Store, identity: int) -> None:
        """Drop a generation step by step. Its vectors stay in the cache if no newer generation of
        its model exists.
        """
        held = store.vectors.generations()
        generation = next((one for one in held if one.id == identity), None)
        if generation is None or generation.live:
            return
        keep = not any(one.name == generation.name and one.id > identity for one in held)
        now = time.time()
        with store.writing_derived():
            if store.vectors.retire(generation, limit=RETIRED, keep=keep, now=now) < RETIRED:
                store.vectors.drop(identity, now=now)

    def _start(self, key: tuple[int, int], work: Awaitable[None]) -> None:
        async def run() -> None:
            try:
                with self._watch():
                    try:
                        await work
                    except EmbedderError as error:
                        # The model's breaker and budget already record its state.
                        log.warning("embedding stopped: %s", type(error).__name__)
            finally:
                self._filling.pop(key, None)
                self._wake.set()

        if key not in self._filling:
            self._filling[key] = asyncio.create_task(run(), name="confide-fill")

    async def _fill(self, generation: int, place: int) -> None:
        found = await self._threads.write(
            lambda store: next((one for one in store.vectors.generations() if one.id == generation), None)
        )
        if found is None:
            return
        filling = Filling(self._threads, self.budget, found, self.providers[place], self._count, self._look_at)
        has_moved = False
        while not self._closing and (generation, place) in self._plan.fill and await filling.round():
            has_moved = True
            self.failure = None
            self._wake.set()  # it may be complete
            await self._tell()
        if not has_moved:
            # The missing chunks were not found, as in a damaged index; leave the repair time to
            # run.
            await asyncio.sleep(SHORTEST_PAUSE_S)

    def _count(self, pieces: int) -> None:
        self.computed_pieces += pieces

    async def _probe(self, provider: BudgetedModel) -> None:
        await in_thread(provider.probe)

    @contextlib.contextmanager
    def _watch(self) -> Iterator[None]:
        """Run a step; if it fails, record the failure and pause the work."""
        try:
            yield
        except Exception as error:
            failure = error
            if not isinstance(failure, ConfideError):
                # A bug must neither stop indexing silently nor loop. Log only its type, since its
                # text may quote anything.
                log.error("the indexing of a space broke: %s", type(error).__name__)
                failure = ConfideError(f"it is broken ({type(error).__name__})")
            self.failure = failure
            self._held_back = True
            log.warning("indexing stopped: %s", type(failure).__name__)

    def _pause(self) -> float | None:
        """Return the seconds until the next check without a wake-up; None: no check is needed."""
        if self._held_back:
            return RETRY_S
        waits: list[float] = []
        has_others = sum(not provider.model.is_aside for provider in self.providers) > 1
        for provider in self.providers:
            condition = provider.standing().condition
            if provider.is_spent:
                waits.append(CALENDAR_LOOK_S)
                continue
            if condition is Condition.DOWN and has_others:
                waits.append(OUTAGE_LOOK_S)
            if condition in (Condition.DOWN, Condition.REFUSED) and (has_others or provider.name in self._lacking):
                waits += [max(SHORTEST_PAUSE_S, provider.retry_in_s)] if provider.retry_in_s is not None else []
        return min(waits, default=None)

    async def _tell(self) -> None:
        async with self._moved:
            self.moves += 1
            self._moved.notify_all()

    def _recut(self, store: Store) -> int:
        """Cut some documents again after a change of settings, as far as that takes no vectors from
        searches: those without chunks of their newest text, or all if no vectors answer.
        """
        is_answered = _serving(store, self.standings()) is not None
        listed = store.documents.documents_without_current_chunks if is_answered else store.documents.documents_to_cut
        documents = listed(self.derivation.chunking, limit=RECUT)
        if documents and not self._disk.has_room_for("vectors"):
            self._has_put_off = True
            return 0
        self._cut_again(store, documents)
        return len(documents)

    def _cut_again(self, store: Store, documents: Sequence[DocumentRow]) -> None:
        chunking = self.derivation.chunking
        texts = [(document, _newest_text(store, document)) for document in documents]
        now = time.time()
        try:
            with store.writing_derived():
                for document, text in texts:
                    if text is None:
                        # The text is lost. Keep the chunks, which may be all that remains of it.
                        store.documents.leave_uncut(document.id, chunking=chunking)
                    else:
                        self.derivation.keep(store, document, text, now)
                for generation in store.vectors.generations():
                    store.vectors.add_known(generation, [document.id for document in documents])
        except ConfideError:
            raise
        except Exception:
            # One of the texts cannot be cut: handle each by itself, so that the others are indexed.
            for document, text in texts:
                if text is not None:
                    self.derivation.follow(store, document, text, now)

    async def _recut_ahead(self, generation: Generation, place: int) -> None:
        """Cut documents again whose chunks answer searches with vectors: those of the new chunks
        are computed first, so that at every moment all of a document is found by its meaning.
        """
        filling = Filling(self._threads, self.budget, generation, self.providers[place], self._count)
        while not self._closing:
            documents, texts = await self._threads.write(self._ahead)
            if not documents:
                return
            while not self._closing and texts and await filling.round_ahead(texts):
                self.failure = None
                await self._tell()
            if self._closing:
                return
            names = [document.id for document in documents]

            def cut_again(store: Store, names: list[int] = names) -> None:
                found = store.documents.by_id(names)
                self._cut_again(store, [one for one in found if not one.deleted and self._is_cut_otherwise(one)])

            await self._threads.write(cut_again)
            self._wake.set()
            await self._tell()

    def _is_cut_otherwise(self, document: DocumentRow) -> bool:
        chunking = document.chunking
        return chunking != self.derivation.chunking and not (chunking or "").startswith(UNCUTTABLE)

    def _ahead(self, store: Store) -> tuple[list[DocumentRow], list[WaitingPiece]]:
        """Return some documents that were cut otherwise, and the texts of their new chunks."""
        documents = store.documents.documents_to_cut(self.derivation.chunking, limit=RECUT)
        texts: list[WaitingPiece] = []
        for document in documents:
            text = _newest_text(store, document)
            # What cannot be cut is noted when it is cut in earnest.
            with contextlib.suppress(Exception):
                pieces = [] if text is None else self.derivation.cut(document, text)
                texts += [WaitingPiece(YET_TO_COME, piece_hash(one.text), one.text, 0.0, one.tokens) for one in pieces]
        return documents, texts


def _serving(store: Store, models: Sequence[ModelStatus]) -> tuple[Generation, int] | None:
    """Return the live generation if it has vectors and its model answers now or is likely to again,
    and the place of that model.
    """
    live = live_generation(store)
    if live is None or not store.pieces.count() > store.vectors.waiting_count(live.id):
        return None
    for place, model in enumerate(models):
        # The name of a model that is not loaded yet is unknown: it may be this one.
        if model.name in (live.name, None) and model.condition is not Condition.REFUSED:
            return live, place
    return None


def _newest_text(store: Store, document: DocumentRow) -> str | None:
    """Return the text of the newest revision, or None if it is lost."""
    try:
        revision = store.documents.revision(document.id, document.revision)
    except DamagedError:
        return None
    return None if revision is None else revision.text
