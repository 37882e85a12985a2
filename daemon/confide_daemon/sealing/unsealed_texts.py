"""The texts that a space holds, for a machine that looks through all of them and seals what stands in them in clear.

The daemon knows neither the rules nor the keys: it hands out every stored text, puts the sealed ones in their places, and removes what is
left of the others from its file. A revision keeps its number, author and time. So to a machine whose file was that revision it still is:
it sends its file, sealed, once more, is told that this is what is here, and neither merges nor writes anything.

Each text is replaced in a transaction of its own, with all that is derived from it, and a mark in the same transaction says that the file
has not been cleaned since. Broken off at any point, a second run goes on where the first has ended: what was sealed is `same`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Any, Final

from confide_daemon.access.registry import Registry
from confide_daemon.documents import provenance
from confide_daemon.errors import StorageError
from confide_daemon.retrieval.indexing.indexer import Indexer
from confide_daemon.retrieval.search.searcher import Searcher
from confide_daemon.store.rows import StoredText
from confide_daemon.store.space_store import Store
from confide_daemon.store.threads import StoreThreads
from confide_daemon.store.upkeep import salvage

log = logging.getLogger(__name__)

PAGE_BYTES: Final = 3 * 1024 * 1024
"""Of packed texts in one page, if it is not a single larger one; base64 makes four thirds of it."""
PAGE_TEXTS: Final = 2000
UNERASED: Final = "unerased"
"""A mark: texts were replaced since the file was last cleaned."""
# Another process may read the file for a moment, as confided doctor does.
_TRIES: Final = 3
_PAUSE_S: Final = 2.0
_FOLD_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class TextPage:
    texts: list[StoredText]  # in the order of their changes; none where nothing follows
    total: int  # how many there are on all pages
    is_clean: bool  # nothing was put in the place of another text since the file was last cleaned


@dataclass(frozen=True, slots=True)
class Erased:
    """What is left of a file that was cleaned."""

    bytes: int  # its size
    damaged_copies: int  # former files that are kept since they were damaged, and hold what they held


class SpaceTexts:
    """Those of one space."""

    def __init__(self, threads: StoreThreads, indexer: Indexer, searcher: Searcher) -> None:
        self._threads = threads
        self._indexer = indexer
        self._searcher = searcher

    async def page(self, after: int) -> TextPage:
        """The texts of the revisions behind a change (0: from the first). Raises StorageError."""

        def work(store: Store) -> TextPage:
            with store.reading():
                texts = store.texts.listed(after, most_bytes=PAGE_BYTES, most=PAGE_TEXTS)
                return TextPage(texts, store.texts.count(), not store.marks.find(UNERASED))

        return await self._threads.read(work)

    async def rewrite(self, change: int, before: str, text: str) -> str:
        """Puts a text, checked as `documents.check_text` does, in the place of the one with the hash `before`.

        What became of it: `rewritten`, `same`, `changed` or `gone`. Raises InvalidTextError where it is not that text with stand-ins for
        some of its parts; StorageError.
        """
        try:
            return await self._threads.write(lambda store: self._rewrite(store, change, before, text))
        finally:
            self._indexer.changed()

    def _rewrite(self, store: Store, change: int, before: str, text: str) -> str:
        with store.writing():
            outcome, document = store.texts.rewrite(change, before, text)
            if outcome == "rewritten":
                store.marks.put(UNERASED, 1.0)
                if (changed := store.texts.document_of(change)) is not None:
                    provenance.sealed(store, changed)
            for row in store.documents.by_id([document] if document is not None else []):
                self._indexer.derivation.keep(store, row, text, time.time())
            return outcome

    async def erase(self) -> Erased:
        """Leaves nothing in the file of texts that are there no more. Writes wait while the file is written anew.

        Raises StorageError where there is no room for it, or another process reads all the time; what was done is not undone.
        """
        begin = True
        while await self._threads.maintain(lambda store: store.free_space.merge_words(begin=begin)):  # noqa: B023 - awaited here
            begin = False
            await asyncio.sleep(0)
        self._searcher.forget_texts()
        erased = await self._written_anew()
        await self._fold()
        log.info("the file of a space was cleaned of texts that are there no more")
        return erased

    async def _written_anew(self) -> Erased:
        tries_left = _TRIES
        while True:
            tries_left -= 1
            try:
                return await self._threads.maintain(self._write_anew)
            except StorageError:
                if not tries_left:
                    raise
            await asyncio.sleep(_PAUSE_S)

    def _write_anew(self, store: Store) -> Erased:
        """In one go, so that what is replaced meanwhile is not taken for cleaned."""
        with store.writing():
            store.texts.forget_traces()
        store.free_space.optimize_words()
        store.replacement.copy_clean()
        # Without the connections that read, whose pages in memory go with them.
        self._threads.alone(store.replacement.swap_clean)
        if store.outbox is not None:
            store.outbox.take_snapshot()  # entries, and the snapshot before, hold what was
        with store.writing():
            store.marks.put(UNERASED, 0.0)
        return Erased(store.size_bytes(), salvage.damaged_copies(store.path))

    async def _fold(self) -> None:
        deadline = time.monotonic() + _FOLD_S
        while not await self._threads.maintain(lambda store: self._threads.alone(store.free_space.fold_log)):
            if time.monotonic() > deadline:
                raise StorageError(
                    "the log of the database cannot be emptied: another process reads it all the time",
                    hint="run it again when that has ended",
                )
            await asyncio.sleep(_PAUSE_S)

    async def is_older_than_sealing(self) -> bool:
        """Whether there are texts from before anything was sealed here."""
        return await self._threads.read(lambda store: store.texts.is_older_than_sealing())


@dataclass(frozen=True, slots=True)
class Unsealed:
    """How many credentials a space holds in clear, as one of its machines has counted them, and when (seconds since 1970)."""

    findings: int
    seen_at: float


class UnsealedCounts:
    """Those of all spaces, in the registry, so that an operator is told of them while a space is locked.

    As safe as the registry itself: from several threads and processes.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def keep(self, space_id: str, counted: Unsealed) -> None:
        """In the place of an older one. Raises StorageError."""
        with self._registry.transaction() as database:
            sql = "INSERT OR REPLACE INTO unsealed (space, findings, seen_at) VALUES (?, ?, ?)"
            database.execute(sql, (space_id, counted.findings, counted.seen_at))

    def of(self, space_id: str) -> Unsealed | None:
        """The last one; None where nobody has ever counted. Raises StorageError."""
        with self._registry.reading() as database:
            sql = "SELECT findings, seen_at FROM unsealed WHERE space = ?"
            rows: list[Any] = database.execute(sql, (space_id,)).fetchall()
        return Unsealed(*rows[0]) if rows else None
