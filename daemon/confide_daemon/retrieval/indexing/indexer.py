"""Keeps the derived rows in step with the documents: pieces after a change of settings, and vectors, in the background.

The queue is the pieces without a vector in a generation; it is never written down, so a crash cannot lose or repeat any of it.
What should serve and what is filled is decided anew after every step (`generations`); each (generation, model) that lacks vectors
is filled by a task of its own, so that a slow provider does not keep a quick one waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from confide_crypto.errors import ConfideError
from confide_daemon.config import ChunkSettings
from confide_daemon.datadir.disk import Disk
from confide_daemon.documents import provenance
from confide_daemon.errors import DamagedError, EmbedderError
from confide_daemon.retrieval.chunker import cut
from confide_daemon.retrieval.indexing.backfill import Filling
from confide_daemon.retrieval.indexing.generations import (
    GenerationGap,
    GenerationPlan,
    Patience,
    decide,
    holdings,
    successor,
)
from confide_daemon.retrieval.indexing.indexed_model import (
    BudgetedModel,
    Condition,
    ModelStatus,
    MonthlyBudget,
    in_thread,
)
from confide_daemon.store.rows import DocumentRow, Piece, PieceChanges
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.document_tables import UNCUTTABLE
from confide_daemon.store.threads import StoreThreads
from confide_memory import mentions, note, note_names
from confide_memory.documents import is_note
from confide_memory.front_matter import split
from confide_memory.markdown_blocks import headings
from confide_memory.note import Note

log = logging.getLogger(__name__)


class Derivation:
    """Keeps what a store has derived of documents in step with their texts; within a transaction that writes.

    That is their pieces, the words they are found by beside them, what they say of themselves as notes, and what they mention.
    """

    def __init__(self, chunks: ChunkSettings) -> None:
        self.chunks = chunks
        self.chunking = chunks.name

    def keep(self, store: Store, row: DocumentRow, text: str | None, now: float) -> PieceChanges:
        """The document has this text now; None: it is deleted, and all that was derived of it goes."""
        return self.judge(store, row, text, now)()

    def judge(self, store: Store, row: DocumentRow, text: str | None, now: float) -> Callable[[], PieceChanges]:
        """What the text counts as is written down, which is no derived row; gives what makes those. See `keep`."""
        judged = None if text is None else provenance.judge(store, row, text)
        return lambda: self._make(store, row, text, judged, now)

    def _make(
        self, store: Store, row: DocumentRow, text: str | None, judged: provenance.Judged | None, now: float
    ) -> PieceChanges:
        found = note.read(row.project, row.path, text) if text is not None and is_note(row.path) else None
        pieces = [] if text is None or judged is None else _judged(self._pieces(text, found), text, judged)
        words = "" if found is None else found.words
        changes = store.pieces.replace(row, pieces, chunking=self.chunking, now=now, words=words)
        if is_note(row.path):
            store.notes.replace(row, found, now=now)
        if row.source == "memory":
            store.mentions.replace(row, None if text is None else mentions.read(row.path, text))
        return changes

    def follow(self, store: Store, row: DocumentRow, text: str | None, now: float) -> bool:
        """What is derived of a document follows the text that is stored already, in a transaction of its own; False: it cannot be cut.

        That is written down, and tried again by who looks after the space: else one such text would keep all others from being indexed.
        Raises ConfideError: the store cannot be written to.
        """
        try:
            with store.writing_derived():
                self.keep(store, row, text, now)
        except ConfideError:
            raise
        except Exception as error:
            # A fault of ours; its own text may quote the document.
            why = type(error).__name__
            if row.chunking == f"{UNCUTTABLE}{why}":
                return False  # as the last time
            log.error("document %d cannot be cut (%s): what is new in it is not found", row.id, why)
            with store.writing_derived():
                if not store.documents.has_own_pieces(row.id):
                    # They may hold what is there no more, such as a credential that is sealed by now.
                    self._make(store, row, None, None, now)
                store.documents.note_uncuttable(row.id, why)
            return False
        return True

    def follow_all(self, store: Store, documents: Sequence[int]) -> None:
        """The same for documents, by their ids, that another node has written."""
        now = time.time()
        for row in store.documents.by_id(documents):
            revision = None if row.deleted else store.documents.revision(row.id, row.revision)
            self.follow(store, row, revision.text if revision is not None else None, now)

    def retry(self, store: Store, *, after: int, limit: int) -> tuple[int, int | None]:
        """Tries some of those again that could not be cut, behind an id: how many could be now, and behind which id to go on.

        The latter is None where there are no more. Raises ConfideError: the store cannot be written to.
        """
        found = store.documents.uncuttable(after=after, limit=limit)
        cut_now = 0
        for row in found:
            text = _newest_text(store, row)
            cut_now += text is not None and self.follow(store, row, text, time.time())
        return cut_now, found[-1].id if len(found) == limit else None

    def extend(self, store: Store, row: DocumentRow, before: str, added: str, now: float) -> None:
        """The document got more text at its end, which begins with a heading, so that the pieces before it stay as they are.

        `row` is as it is now, but cut as it was; `before` is the text that it had, below a title.
        """
        if row.chunking == self.chunking:
            title = before.split("\n", 1)[0].removeprefix("# ")
            pieces = self._below(added, before.count("\n"), title)
            # All of a transcript is untrusted, as its document is.
            store.pieces.add(row, [replace(piece, doubted=False) for piece in pieces], now=now)

    def _pieces(self, text: str, found: Note | None) -> list[Piece]:
        """A note is cut without its front matter, and its title stands above all of its headings."""
        head, body = split(text) if found is not None else ("", text)
        if found is None or not body.strip():
            return cut(text, self.chunks)
        # A title that is the text's own first words would say them twice in each of its pieces: two points of recall@1 on notes
        # without titles.
        return self._below(
            body, head.count("\n"), "" if found.title == note_names.title_of(found.body) else found.title
        )

    def _below(self, text: str, lines: int, title: str) -> list[Piece]:
        """The pieces of a text that stands below so many lines and this title."""
        return [
            replace(
                piece,
                start_line=piece.start_line + lines,
                end_line=piece.end_line + lines,
                heading=_heading_below(title, piece.heading),
            )
            for piece in cut(text, self.chunks)
        ]


def _judged(pieces: Sequence[Piece], text: str, judged: provenance.Judged) -> list[Piece]:
    """The pieces, each with whether it or a heading above it holds something that is untrusted."""
    if not judged.doubted:
        return [replace(piece, doubted=False) for piece in pieces]
    titles = [one.title for one in headings(text) if judged.holds(one.line, one.line)]

    def is_doubted(piece: Piece) -> bool:
        return judged.holds(piece.start_line, piece.end_line) or any(title in piece.heading for title in titles)

    return [replace(piece, doubted=is_doubted(piece)) for piece in pieces]


def _heading_below(title: str, heading: str) -> str:
    return heading if not title or heading.split(" > ", 1)[0] == title else f"{title} > {heading}" if heading else title


T = TypeVar("T")

# Documents cut again in one transaction after a change of settings.
RECUT = 8
# Vectors taken out of a generation that goes in one transaction: some 20 ms.
RETIRED = 1000
# After a failure of the database (disk full) the work is tried again, though nobody asked.
RETRY_S = 30.0
# How often a model that is down is looked at when another one could take its place, and how often the calendar.
OUTAGE_LOOK_S = 10.0
CALENDAR_LOOK_S = 3600.0
SHORTEST_PAUSE_S = 0.05
# A change is answered before its vectors are made, and what changes in quick succession is embedded in one call.
SETTLE_S = 0.05
# Closing waits so long for calls that are under way; what comes later is embedded again after the next start.
CLOSE_S = 5.0
# One decision may lead to another (drop, add, fill from nothing, swap), but not for ever.
DECISIONS = 8
# Documents that could not be cut and are tried again in one step of the writer.
RETRIED = 8
_UNCUTTABLE = "what is new in them is not found; it is tried again every ten minutes, and their texts are whole"
# What searches and the status say meanwhile.
NO_ROOM = (
    "little room is left on the daemon's disk: indexing waits for more, and what is new is found by its words alone"
)


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """How far the vectors are: of the generation being built when there is one, else of the live one."""

    done: int
    total: int
    generation: int | None
    building: bool
    complete: bool = False  # the model that should serve does, and nothing is left to do


@dataclass(frozen=True, slots=True)
class IndexTarget:
    """What the work is to lead to: whether a new generation was asked for and not yet begun, and how the models stand."""

    renewing: bool
    models: list[ModelStatus]


class Indexer:
    """One for each space."""

    def __init__(
        self,
        threads: StoreThreads,
        providers: Sequence[BudgetedModel],
        budget: MonthlyBudget,
        derivation: Derivation,
        patience: Patience,
        disk: Disk,
    ) -> None:
        """`providers`: the wanted one first. `disk`: nothing is added to its last room."""
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
        self._filling: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._plan = GenerationPlan()
        self._lacking: set[str] = set()  # names of vectors that pieces wait for
        self._held_back = False  # after a failure, until it is time to try again
        self._task: asyncio.Task[None] | None = None
        self._ready: Callable[[], None] | None = None
        self.failure: ConfideError | None = None
        self._has_put_off = False
        self.waits_for_room = False  # what there is to do is left until the disk has room
        self.uncuttable: dict[str, int] = {}  # documents that cannot be cut, by why, as last seen
        self.waiting = 0  # pieces without a vector of the model that serves, as last seen
        self.idle = False  # nothing left to do that can be done now
        self.computed = 0  # pieces that models have given a vector, since this began
        self.moves = 0  # how often something was indexed, or the work came to rest

    def start(self) -> None:
        """Begins the work, and takes it up again when a model is ready."""
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._run(), name="confide-index")

        def ready() -> None:
            # The loop may have ended before the model was there.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self.wake)

        for provider in self.providers:
            provider.model.when_settled(ready)
        self._ready = ready
        self._disk.listen(self.wake)
        self.wake()

    def wake(self) -> None:
        """There is work, or a reason to try it again."""
        self.idle = False
        self._held_back = False
        self._wake.set()

    def changed(self) -> None:
        """Documents have changed: the index follows SETTLE_S later."""
        self.idle = False
        if self._settling is None:
            self._settling = asyncio.get_running_loop().call_later(SETTLE_S, self._settled)

    def _settled(self) -> None:
        self._settling = None
        self.wake()

    async def close(self) -> None:
        """Ends after what is being stored; calls that take longer are given up."""
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
        """Waits until something was indexed or the work came to rest, at most so long."""
        async with self._moved:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._moved.wait()

    def renew(self) -> None:
        """Asks for a new generation of the same model, all of it computed anew."""
        self._renew = True
        self.forgive()

    def forgive(self) -> None:
        """Somebody asks for the work to be done: models that refused are asked again."""
        for provider in self.providers:
            provider.forgive()
        self.wake()

    @property
    def is_loading(self) -> bool:
        return any(provider.model.state == "loading" for provider in self.providers)

    def warnings(self) -> list[str]:
        """What whoever searches should know."""
        said = [] if self.failure is None else [f"indexing has stopped: {self.failure}"]
        if self.uncuttable:
            why = ", ".join(f"{count} {reason}" for reason, count in sorted(self.uncuttable.items()))
            said.append(f"documents that cannot be cut: {why}; {_UNCUTTABLE}")
        if self.waits_for_room:
            said.append(NO_ROOM)
        return said

    def standings(self) -> list[ModelStatus]:
        """How the models stand, the wanted one first."""
        return [provider.standing() for provider in self.providers]

    def outlook(self) -> IndexTarget:
        """What is wanted now. To be taken before the view of the store it is compared with, which may only be newer."""
        return IndexTarget(self._renew, self.standings())

    def progress(self, store: Store, outlook: IndexTarget) -> IndexProgress:
        """How far the vectors are, in one view of the store."""
        renewing, models = outlook.renewing, outlook.models
        held = holdings(store)
        total = store.pieces.count()
        live = next((one for one in held if one.generation.live), None)
        plan = decide(held, models, renew=renewing, patience=self._patience)
        names = [model.name for model in models]
        # Where it is not decided which model should serve, it is the wanted one that is waited for.
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
            and not store.documents.cut_otherwise(self.derivation.chunking, limit=1)
            and not store.documents.count_uncuttable()
        )
        done = total - current.missing
        return IndexProgress(done, total, current.generation.id, building=building is not None, complete=complete)

    async def _run(self) -> None:
        while not self._closing:
            self._wake.clear()
            self._has_put_off = False
            with self._watched():
                while not self._closing and await self._threads.write(self._recut) > 0:
                    await self._tell()
                await self._decide()
            self.waits_for_room = self._has_put_off
            self.idle = not (self._wake.is_set() or self._filling or self._settling)
            await self._tell()
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
        if plan.drop:
            await self._threads.write(lambda store: self._retire(store, plan.drop[0]))
            self._wake.set()
        for place in plan.probe:
            self._start((0, place), self._probe(self.providers[place]))
        for generation, place in plan.fill:
            if (generation, place) not in self._filling:
                self._start((generation, place), self._fill(generation, place))

    def _apply(self, store: Store, models: Sequence[ModelStatus]) -> GenerationPlan:
        """Lets generations come, go and change places until that is as it should be; what is left to fill."""
        plan = GenerationPlan()
        for _ in range(DECISIONS):
            held = holdings(store)
            self._lacking = {one.generation.name for one in held if one.missing}
            self.waiting = self._waiting(store, held, models)
            self.uncuttable = store.documents.count_uncuttable()
            plan = self._postponed(decide(held, models, renew=self._renew, patience=self._patience))
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
            if plan.add is not None:
                self._renew = False
        return plan

    def _postponed(self, plan: GenerationPlan) -> GenerationPlan:
        """The plan less what it adds to a disk that has little room: generations go and change places all the same."""
        may_add = plan.add is None or self._disk.has_room_for("generations")
        may_fill = not plan.fill or self._disk.has_room_for("vectors")
        self._has_put_off = self._has_put_off or not (may_add and may_fill)
        return replace(plan, add=plan.add if may_add else None, fill=plan.fill if may_fill else ())

    def _waiting(self, store: Store, held: Sequence[GenerationGap], models: Sequence[ModelStatus]) -> int:
        live = next((one for one in held if one.generation.live), None)
        if live is not None:
            return live.missing
        # Without any model there is nothing to wait for.
        return 0 if all(one.condition is Condition.REFUSED for one in models) else store.pieces.count()

    def _retire(self, store: Store, identity: int) -> None:
        """Lets a generation go, a step at a time. Its vectors are kept where there is no newer one of its model."""
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
                with self._watched():
                    try:
                        await work
                    except EmbedderError as error:
                        # How its model stands now is known to its breaker and its budget.
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
        filling = Filling(self._threads, self.budget, found, self.providers[place], self._count)
        has_moved = False
        while not self._closing and (generation, place) in self._plan.fill and await filling.round():
            has_moved = True
            self.failure = None
            self._wake.set()  # it may be complete
            await self._tell()
        if not has_moved:
            # What is counted as missing could not be found, as in a damaged index: its healing is not to be outrun.
            await asyncio.sleep(SHORTEST_PAUSE_S)

    def _count(self, pieces: int) -> None:
        self.computed += pieces

    async def _probe(self, provider: BudgetedModel) -> None:
        await in_thread(provider.probe)

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Around a step of the work: what it fails with holds the work back."""
        try:
            yield
        except Exception as error:
            failure = error
            if not isinstance(failure, ConfideError):
                # A bug must neither end the indexing in silence nor spin; its text may quote anything.
                log.error("the indexing of a space broke: %s", type(error).__name__)
                failure = ConfideError(f"it is broken ({type(error).__name__})")
            self.failure = failure
            self._held_back = True
            log.warning("indexing stopped: %s", type(failure).__name__)

    def _pause(self) -> float | None:
        """How long until it is worth looking again though nobody asks; None: for ever."""
        if self._held_back:
            return RETRY_S
        waits: list[float] = []
        has_others = len(self.providers) > 1
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
        chunking = self.derivation.chunking
        documents = store.documents.cut_otherwise(chunking, limit=RECUT)
        if not documents:
            return 0
        if not self._disk.has_room_for("vectors"):
            self._has_put_off = True
            return 0
        texts = [(document, _newest_text(store, document)) for document in documents]
        now = time.time()
        try:
            with store.writing_derived():
                for document, text in texts:
                    if text is None:
                        # It is lost: its pieces, by which it is still found, may be all that there is of it.
                        store.documents.leave_uncut(document.id, chunking=chunking)
                    else:
                        self.derivation.keep(store, document, text, now)
        except ConfideError:
            raise
        except Exception:
            # One of them cannot be cut: each by itself, so that the others are.
            for document, text in texts:
                if text is not None:
                    self.derivation.follow(store, document, text, now)
        return len(documents)


def _newest_text(store: Store, document: DocumentRow) -> str | None:
    """None: it is lost."""
    try:
        revision = store.documents.revision(document.id, document.revision)
    except DamagedError:
        return None
    return None if revision is None else revision.text
