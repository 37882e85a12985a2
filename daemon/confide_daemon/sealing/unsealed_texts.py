"""Access to all texts of a space, for a device that searches them for credentials in clear and
seals these.

The daemon has neither rules nor keys for that. It lists every stored text, replaces texts by their
sealed versions, and erases what is left of the old ones from its file. A revision keeps its number,
author and time. So it is still current for a device whose file was that revision: the device sends
its file once more, sealed, learns that it equals the stored text, and neither merges nor writes
anything.

Each text is replaced in its own transaction, together with all data derived from it and a mark that
the file has not been cleaned since. An interrupted run can be repeated at any point: texts that are
sealed already are reported as `same`.
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
"""Bytes of packed texts on a page, or a single larger text; base64 adds a third."""
PAGE_TEXTS: Final = 2000
UNERASED: Final = "unerased"
"""Mark that texts were replaced since the file was last cleaned."""
# Another process, such as confided doctor, may read the file for a moment.
_TRIES: Final = 3
_PAUSE_S: Final = 2.0
_FOLD_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class TextPage:
    texts: list[StoredText]  # in the order of their changes; empty after the last page
    total: int  # number of texts on all pages
    is_clean: bool  # no text was replaced since the file was last cleaned


@dataclass(frozen=True, slots=True)
class Erased:
    """The result of cleaning a database file."""

    bytes: int  # its size
    damaged_copies: int  # damaged former files that are kept and still hold the old texts


class SpaceTexts:
    """Lists, replaces and erases the stored texts of one space."""

    def __init__(self, threads: StoreThreads, indexer: Indexer, searcher: Searcher) -> None:
        self._threads = threads
        self._indexer = indexer
        self._searcher = searcher

    async def page(self, after: int) -> TextPage:
        """Return a page of texts in the order of their changes, beginning after change number
        `after` (0: with the first). Raises StorageError if the database cannot be read.
        """

        def work(store: Store) -> TextPage:
            with store.reading():
                texts = store.texts.list_texts(after, most_bytes=PAGE_BYTES, most=PAGE_TEXTS)
                return TextPage(texts, store.texts.count(), not store.marks.find(UNERASED))

        return await self._threads.read(work)

    async def rewrite(self, change: int, before: str, text: str) -> str:
        """Replace the text of a revision by its sealed version `text`, if its present hash is
        `before`. The caller has checked `text` with `documents.check_text`.

        Return `rewritten`, `same` (it has this text already), `changed` (it has another text) or
        `gone` (no such revision). Raises InvalidTextError if `text` differs in more than
        placeholders, StorageError if it cannot be written.
        """
        try:
            return await self._threads.write(lambda store: self._rewrite(store, change, before, text))
        finally:
            self._indexer.note_change()

    def _rewrite(self, store: Store, change: int, before: str, text: str) -> str:
        with store.writing():
            outcome, document = store.texts.rewrite(change, before, text)
            if outcome == "rewritten":
                store.marks.put(UNERASED, 1.0)
                if (changed := store.texts.document_of(change)) is not None:
                    provenance.remake_marks(store, changed)
            for row in store.documents.by_id([document] if document is not None else []):
                self._indexer.derivation.keep(store, row, text, time.time())
            return outcome

    async def erase(self) -> Erased:
        """Erase all traces of replaced texts by rewriting the database file. Writes wait meanwhile.

        Raises StorageError if the disk has no room for it, or if another process keeps reading the
        file; steps that are complete stay done.
        """
        begin = True
        while await self._threads.maintain(lambda store: store.free_space.merge_words(begin=begin)):  # noqa: B023 - awaited here
            begin = False
            await asyncio.sleep(0)
        self._searcher.forget_texts()
        erased = await self._retry_write_anew()
        await self._fold()
        log.info("the file of a space was cleaned of texts that are there no more")
        return erased

    async def _retry_write_anew(self) -> Erased:
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
        """Rewrite the file in one step, so that a text replaced meanwhile doesn't count as cleaned."""
        with store.writing():
            store.texts.forget_traces()
        store.free_space.optimize_words()
        store.free_space.recount_words()
        store.replacement.copy_clean()
        # With all reading connections closed, whose cached pages go too.
        self._threads.alone(store.replacement.swap_clean)
        if store.outbox is not None:
            store.outbox.take_snapshot()  # log entries and the last snapshot hold the old texts
        with store.writing():
            store.marks.put(UNERASED, 0.0)
        return Erased(store.size_bytes(), salvage.count_damaged_copies(store.path))

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
        """Return True if the space has texts from before this database supported sealed records."""
        return await self._threads.read(lambda store: store.texts.is_older_than_sealing())


@dataclass(frozen=True, slots=True)
class Unsealed:
    """How many credentials in clear a device has counted in the space, and when (seconds since
    1970).
    """

    findings: int
    seen_at: float


class UnsealedCounts:
    """The registry's table of the last count of each space, which an operator can see while a space
    is locked.

    Like the registry, safe to use from several threads and processes.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def keep(self, space_id: str, counted: Unsealed) -> None:
        """Replace the stored count of a space. Raises StorageError if the registry cannot be
        written.
        """
        with self._registry.transaction() as database:
            sql = "INSERT OR REPLACE INTO unsealed (space, findings, seen_at) VALUES (?, ?, ?)"
            database.execute(sql, (space_id, counted.findings, counted.seen_at))

    def of(self, space_id: str) -> Unsealed | None:
        """Return the last count of a space, or None if no device has counted yet. Raises
        StorageError if the registry cannot be read.
        """
        with self._registry.reading() as database:
            sql = "SELECT findings, seen_at FROM unsealed WHERE space = ?"
            rows: list[Any] = database.execute(sql, (space_id,)).fetchall()
        return Unsealed(*rows[0]) if rows else None
