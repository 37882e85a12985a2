"""Keeps the derived rows in step with the documents: pieces after a change of settings, and vectors, in the background.

The queue is the pieces without a vector in a generation; it is never written down, so a crash cannot lose or repeat any of it.
When the model changes, its generation is built beside the live one and swapped in when it is complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from confide_crypto.errors import ConfideError
from confide_daemon.chunks import ChunkSettings, cut
from confide_daemon.embed import Embedder, EmbedderHandle
from confide_daemon.errors import EmbedderError
from confide_daemon.search import Weights
from confide_daemon.store import Generation, Store, Waiting, model_name

log = logging.getLogger(__name__)
T = TypeVar("T")

# Pieces embedded and stored in one go: about a third of a second of work, so that closing and other writes never wait for longer.
BATCH = 32
# Documents cut again in one transaction after a change of settings.
RECUT = 8
# After a failure (disk full, model error) the work is tried again, though nobody asked.
RETRY_S = 30.0


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """How a space is cut and searched."""

    chunks: ChunkSettings = field(default_factory=ChunkSettings)
    weights: Weights = field(default_factory=Weights)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the vectors are: of the generation being built when there is one, else of the live one."""

    done: int
    total: int
    generation: int | None
    building: bool


class Indexer:
    """One task for each space. `write` runs a function with the writing store in the writer's thread."""

    def __init__(
        self,
        write: Callable[[Callable[[Store], T]], Awaitable[T]],
        embedder: EmbedderHandle,
        settings: IndexSettings,
    ) -> None:
        self._write: Callable[[Callable[[Store], object]], Awaitable[object]] = write  # type: ignore[assignment]
        self._embedder = embedder
        self._settings = settings
        self._wake = asyncio.Event()
        self._moved = asyncio.Condition()
        self._closing = False
        self._fresh_generation = False
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="confide-embed")
        self._task: asyncio.Task[None] | None = None
        self.failure: ConfideError | None = None
        self.idle = False  # nothing left to do that can be done

    def start(self) -> None:
        """Begins the work, and takes it up again when the model is ready."""
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._run(), name="confide-index")

        def ready() -> None:
            # The loop may have ended before the model was there.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self.wake)

        self._embedder.when_settled(ready)
        self.wake()

    def wake(self) -> None:
        """There is something to do."""
        self.idle = False
        self._wake.set()

    async def close(self) -> None:
        """Ends after the batch that is being worked on."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await self._task
        self._threads.shutdown(wait=True)

    async def wait_move(self, timeout_s: float) -> None:
        """Waits until something was indexed or the work came to rest, at most so long."""
        async with self._moved:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._moved.wait(), timeout_s)

    def renew(self) -> None:
        """Asks for a new generation of the same model, without use of known vectors."""
        self._fresh_generation = True
        self.wake()

    @property
    def renewing(self) -> bool:
        """Whether a new generation was asked for and not begun yet."""
        return self._fresh_generation

    async def _run(self) -> None:
        while not self._closing:
            self._wake.clear()
            try:
                while not self._closing and await self._step():
                    await self._tell()
                self.failure = None
            except ConfideError as error:
                self.failure = error
                log.warning("indexing stopped: %s", type(error).__name__)
            self.idle = not self._wake.is_set()
            await self._tell()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), RETRY_S if self.failure else None)

    async def _tell(self) -> None:
        async with self._moved:
            self._moved.notify_all()

    async def _step(self) -> bool:
        """One bounded piece of work; False when none is left."""
        if await self._write(self._recut):
            return True
        embedder = self._embedder.embedder
        if embedder is None:
            return False
        generation, waiting = await self._queue(embedder)
        if waiting:
            await self._embed(embedder, generation, waiting)
            return True
        if not generation.live:
            await self._write(lambda store: self._swap(store, generation))
            return True
        return False

    async def _queue(self, embedder: Embedder) -> tuple[Generation, list[Waiting]]:
        def read(store: Store) -> tuple[Generation, list[Waiting]]:
            generation = self._generation(store, embedder)
            return generation, store.waiting(generation.id, after=0, limit=BATCH)

        result = await self._write(read)
        assert isinstance(result, tuple)
        return result

    def _generation(self, store: Store, embedder: Embedder) -> Generation:
        """The generation to fill: the one being built, else the live one; made when the model has none."""
        name = model_name(embedder.id, embedder.model, embedder.dimensions)
        present = store.generations()
        live = next((one for one in present if one.live), None)
        stale = [one for one in present if not one.live and (one.name != name or self._fresh_generation)]
        building = next((one for one in present if not one.live and one not in stale), None)
        wanted = live is None or live.name != name or self._fresh_generation
        if not stale and not wanted and building is None:
            assert live is not None
            return live
        now = time.time()
        with store.writing():
            for one in stale:
                store.drop_generation(one.id, now=now)
            if building is None and wanted:
                building = store.add_generation(
                    embedder.id, embedder.model, embedder.dimensions, live=live is None, now=now
                )
        self._fresh_generation = False
        found = building or live
        assert found is not None
        return found

    async def _embed(self, embedder: Embedder, generation: Generation, waiting: list[Waiting]) -> None:
        texts: dict[bytes, str] = {piece.hash: piece.text for piece in waiting}
        known = await self._write(lambda store: store.known_vectors(generation, list(texts)))
        assert isinstance(known, dict)
        unknown = [digest for digest in texts if digest not in known]
        if unknown:
            run = asyncio.get_running_loop().run_in_executor
            rows = await run(self._threads, embedder.embed_documents, [texts[digest] for digest in unknown])
            if rows.shape != (len(unknown), generation.dimensions):
                raise EmbedderError("the embedding model gave vectors of the wrong shape")
            known |= dict(zip(unknown, rows, strict=True))
        vectors = [(piece.id, known[piece.hash]) for piece in waiting]

        def keep(store: Store) -> int:
            with store.writing_derived():
                return store.add_vectors(generation.id, vectors)

        await self._write(keep)

    def _swap(self, store: Store, generation: Generation) -> None:
        with store.writing():
            # A document may have come between the last batch and this transaction.
            if store.waiting_count(generation.id) == 0:
                store.make_live(generation.id, now=time.time())

    def _recut(self, store: Store) -> int:
        chunking = self._settings.chunks.name
        documents = store.cut_otherwise(chunking, limit=RECUT)
        if not documents:
            return 0
        with store.writing():
            for document in documents:
                revision = store.revision(document.id, document.revision)
                text = revision.text if revision is not None and revision.text is not None else ""
                pieces = cut(text, self._settings.chunks)
                store.replace_pieces(document, pieces, chunking=chunking, now=time.time())
        return len(documents)


def progress(store: Store) -> Progress:
    """How far the vectors of a space are."""
    generations = store.generations()
    total = store.piece_count()
    current = next((one for one in generations if not one.live), None) or next(iter(generations), None)
    if current is None:
        return Progress(0, total, None, building=False)
    return Progress(total - store.waiting_count(current.id), total, current.id, building=not current.live)
