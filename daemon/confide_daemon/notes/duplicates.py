"""Checks if a note that is being stored repeats another one.

The note is embedded while it is being written, so the check adds no time, and neither the writer
thread nor the note itself waits for a model. If the vectors do not arrive in time, the check works
without them and says so in a warning. Vectors (late ones too) are stored for the note's chunks, so
nothing is embedded, or paid for, twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from confide_crypto.errors import ConfideError
from confide_daemon.embedding import Vectors, token_counts
from confide_daemon.errors import EmbedderError, StorageError
from confide_daemon.notes.similarity import FIRST, Near, find_near, first_look
from confide_daemon.retrieval.chunker import cut
from confide_daemon.retrieval.indexing.generations import live_generation, loading
from confide_daemon.retrieval.indexing.indexed_model import Condition, in_thread
from confide_daemon.retrieval.indexing.indexer import Indexer
from confide_daemon.retrieval.search.searcher import Searcher
from confide_daemon.store.rows import NoteRow
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.pieces import Generation, piece_hash
from confide_daemon.store.threads import StoreThreads

log = logging.getLogger(__name__)

DEADLINE_S = 1.5
# Most notes embedded at once, including those past their deadline; further ones are compared by
# their words.
MOST_AT_ONCE = 16
# A text up to this length is cut on the event loop, in 10 ms.
LONG_CHARACTERS = 16_000
BY_TEXT = "duplicates were looked for by text alone"


@dataclass(frozen=True, slots=True)
class DuplicateCheck:
    """The result of a duplicate check. The similar notes are sorted nearest first; `tags` are
    existing tags that occur in the note's text.
    """

    near: tuple[Near, ...] = ()
    tags: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Embedded:
    """The vectors of texts in a generation, by hash."""

    generation: Generation
    vectors: dict[bytes, Vectors]
    fresh: dict[bytes, Vectors] = field(default_factory=dict)  # those of them that were computed now


@dataclass(eq=False, slots=True)
class Duplicates:
    """Runs the duplicate checks of one space, until `close` is called."""

    threads: StoreThreads
    indexer: Indexer
    _searcher: Searcher
    similarity: float  # the least of a duplicate
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def close(self) -> None:
        """Cancel the duplicate checks that are running."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @asynccontextmanager
    async def looking(self, body: str) -> AsyncIterator[Look]:
        """Start to embed a note's text, and yield the duplicate check. Write the note within the
        `with` block.
        """
        # A long text takes most of a second, and the tables a tenth, which would block the event
        # loop.
        is_quick = len(body) <= LONG_CHARACTERS and token_counts.is_ready()
        texts = self._first(body) if is_quick else await asyncio.to_thread(self._first, body)
        look = self._begin(texts)
        try:
            # Let the task run first: the slowest step should begin before the write, which keeps
            # the interpreter busy.
            await asyncio.sleep(0)
            yield look
        finally:
            look.leave()

    def _first(self, body: str) -> list[str]:
        return [piece.text for piece in cut(body.strip("\n"), self.indexer.derivation.chunks)[:FIRST]]

    def _begin(self, texts: Sequence[str]) -> Look:
        look = Look(self, texts)
        if len(self._tasks) < MOST_AT_ONCE:
            task = asyncio.create_task(self._follow(look), name="confide-look")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            look.give_up("the embedding model is still busy with other notes")
        return look

    async def _follow(self, look: Look) -> None:
        """Embed the note, then store the vectors for its chunks once it is written."""
        try:
            embedded = await self._embed(look.texts)
            look.embedded.set_result(embedded)
            # A caller that stores but never searches gets a fast comparison, too.
            self._searcher.warm(embedded.generation)
            await self._keep(embedded, await look.document)
        except ConfideError as error:
            look.give_up(str(error))  # no effect once it has its vectors: the indexer repeats the rest and reports it
        except Exception as error:
            # A bug must not leave the caller waiting. Log only its type, since its text may quote
            # anything.
            log.error("embedding a note broke: %s", type(error).__name__)
        finally:
            look.give_up("the note could not be embedded")
            look.is_kept.set()
            # Later, as after every change: at once, the indexer would compete with the answer.
            self.indexer.note_change()

    async def _embed(self, texts: Sequence[str]) -> _Embedded:
        hashes = [piece_hash(text) for text in texts]
        found = await self.threads.read(lambda store: _cached_vectors(store, hashes))
        if found is None:
            raise EmbedderError(self._why_none("the index is being built with the embedding model"))
        unknown = {digest: text for digest, text in zip(hashes, texts, strict=True) if digest not in found.vectors}
        if not unknown:
            return found
        provider = next((one for one in self.indexer.providers if one.name == found.generation.name), None)
        if provider is None:
            raise EmbedderError(self._why_none("the embedding model is being changed"))
        sizes = [token_counts.count_tokens(text) for text in unknown.values()]
        count = provider.limits.fit(sizes)
        asked, tokens = dict(list(unknown.items())[:count]), sum(sizes[:count])
        with provider.paying(tokens):
            if provider.is_counted:
                # Save the count before sending, as in `indexing.backfill`.
                await self.threads.write(self.indexer.budget.flush)
            rows = await in_thread(lambda: provider.model.embed(list(asked.values()), in_turn=False))
        fresh = dict(zip(asked, rows, strict=True))
        return _Embedded(found.generation, {**found.vectors, **fresh}, fresh)

    def _why_none(self, otherwise: str) -> str:
        wanted = self.indexer.providers[0]
        if wanted.standing().condition is Condition.LOADING:
            return loading(wanted)
        return str(wanted.reason or otherwise)

    async def _keep(self, embedded: _Embedded, document: int | None) -> None:
        """Store the vectors: for the document's chunks or, if it was not written, in the cache for
        the same text.
        """
        generation, vectors = embedded.generation, embedded.vectors

        def keep(store: Store) -> None:
            pieces = store.notes.first_pieces([document], first=FIRST) if document is not None else []
            have = [(piece.id, vectors[piece.hash]) for piece in pieces if piece.hash in vectors]
            with store.writing_derived():
                if have and any(one.id == generation.id for one in store.vectors.generations()):
                    store.vectors.add(generation.id, have)
                else:
                    store.vectors.keep(generation, list(embedded.fresh.items()), now=time.time())

        if document is not None or embedded.fresh:
            await self.threads.write(keep)


class Look:
    def __init__(self, duplicates: Duplicates, texts: Sequence[str]) -> None:
        loop = asyncio.get_running_loop()
        self.texts = texts
        self.embedded: asyncio.Future[_Embedded] = loop.create_future()
        self.document: asyncio.Future[int | None] = loop.create_future()
        self.is_kept = asyncio.Event()
        self._duplicates = duplicates
        self._until = time.monotonic() + DEADLINE_S
        self._problem = ""

    def give_up(self, why: str) -> None:
        if not self.embedded.done():
            self._problem = why
            self.embedded.cancel()

    def leave(self) -> None:
        """End the check. If the note's vectors are still missing, the indexer computes them."""
        if not self.document.done():
            self.document.set_result(None)
            self._duplicates.indexer.wake()

    async def find(
        self,
        row: NoteRow,
        projects: frozenset[str],
        *,
        apart: frozenset[str],
        words: Sequence[str],
        is_limited: bool = False,
    ) -> DuplicateCheck:
        """Return the result of the check for the note that was written.

        Args:
            projects: the projects to search.
            apart: ids of notes whose similarity is known already.
            words: case-folded words; those that are existing tags are returned.
            is_limited: True if the client may access only a part of the space. The result then
                reveals nothing about the rest.
        """
        if not self.document.done():
            self.document.set_result(row.document)
        threads, least = self._duplicates.threads, self._duplicates.similarity
        try:
            # Search by words while the vectors are computed.
            first, embedded = await asyncio.gather(
                threads.read(lambda store: first_look(store, row, projects, words, is_limited=is_limited)),
                self._vectors(),
            )
            generation, vectors = (embedded.generation.id, embedded.vectors) if embedded else (None, {})
            near = await threads.read(
                lambda store: find_near(
                    store, row, first, projects, apart, generation, vectors, least, is_limited=is_limited
                )
            )
        except StorageError as error:  # the note is written, which matters more
            return DuplicateCheck(warnings=(f"duplicates could not be looked for: {error.message}",))
        if embedded is not None:
            # Wait until the vectors are stored, so that the next note is compared with this one.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DEADLINE_S):
                    await self.is_kept.wait()
        # The first note of a space may precede the index, and there is nothing to compare it with.
        warnings = (f"{self._problem}; {BY_TEXT}",) if embedded is None and not first.is_only else ()
        return DuplicateCheck(tuple(near), first.tags, warnings)

    async def _vectors(self) -> _Embedded | None:
        await asyncio.wait([self.embedded], timeout=max(0.0, self._until - time.monotonic()))
        if not self.embedded.done():
            self._problem = f"the embedding model did not answer within {DEADLINE_S:g} s"
            return None
        if self.embedded.cancelled():
            # The check ended before the note had chunks. A running call is not abandoned: the
            # indexer would only repeat it.
            self._duplicates.indexer.wake()
            return None
        return self.embedded.result()


def _cached_vectors(store: Store, hashes: Sequence[bytes]) -> _Embedded | None:
    """Return the live generation with its cached vectors of these texts."""
    with store.reading():
        live = live_generation(store)
        return None if live is None else _Embedded(live, dict(store.vectors.known_vectors(live, hashes)))
