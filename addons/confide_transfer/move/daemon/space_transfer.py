"""The state of a space's move to another daemon (PROTOCOL.md 9.8): reads at the source, writes at
the target, and access meanwhile.

A device of the space copies it from the source to the target. Project, path and number identify a
revision, and a revision that arrives again only updates the stored one. So a move that was
interrupted at any point starts again without loss or duplicates.

The target refuses all other requests until the move is complete. The source serves only the moving
device's session at the end, while its connection lives. Once the device uses the target, the source
closes the space for good, and keeps its data.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from confide_crypto.errors import RequestError
from confide_daemon.documents import provenance
from confide_daemon.documents.document_service import Indexing
from confide_daemon.spaces.part import PARTS_AWAITED, SPACE_LEFT, SpacePart
from confide_daemon.store.rows import TextOrigin
from confide_daemon.store.space_store import Store
from confide_daemon.store.threads import StoreThreads
from confide_transfer.move.daemon.table import MovingTable
from confide_transfer.move.shared.moved import (
    HAS_LEFT,
    MovedDocument,
    MovedLink,
    MovedRevision,
    MovedSession,
    is_whole,
)

_T = TypeVar("_T")

PAGE_BYTES: Final = 3 * 1024 * 1024
"""Limit of compressed texts in one page, unless a single text is larger; base64 makes them a third
longer.
"""
PAGE_TEXTS: Final = 2000
PAGE_NAMES: Final = 5000
"""Limit of revisions in a page without texts."""
PAGE_FACTS: Final = 500
ARRIVING: Final = "move: arriving"
ARRIVED: Final = "move: arrived"
ALONE: Final = frozenset(
    {
        *("move-state", "move-out", "move-facts", "move-hold", "move-leave"),
        *("move-begin", "move-in", "move-end", "move-tasks", "move-tasks-in"),
    }
)
"""Requests that the daemon answers in every state of a move. While a space arrives, it also answers
those in `BESIDE`.
"""
BESIDE: Final = frozenset({"records", "record", "record-list"})


@dataclass(frozen=True, slots=True)
class Load:
    """The data of one request of a move, which the daemon writes in one transaction."""

    revisions: Sequence[tuple[MovedRevision, str | None]]  # each with its text, compared with its hash
    dropped: Sequence[tuple[str, str, int]] = ()  # project, path, revision
    documents: Sequence[MovedDocument] = ()
    sessions: Sequence[MovedSession] = ()
    links: Sequence[MovedLink] = ()


class Moving(SpacePart):
    """Keeps the state of one space's move, and reads and writes the data of the move."""

    def __init__(self, threads: StoreThreads, index: Indexing) -> None:
        self._threads = threads
        self._index = index
        self.is_arriving = False
        self.left_at = 0.0
        """Time when the space moved to another daemon, in seconds since 1970; 0 if it did not."""
        self._holder = ""

    @property
    def is_held(self) -> bool:
        """Return True if a session has reserved the space for its move."""
        return bool(self._holder)

    async def open(self) -> None:
        """Load the state of the move from the database."""

        def work(store: Store) -> tuple[float, float]:
            with store.reading():
                return store.marks.find(ARRIVING), store.marks.find(SPACE_LEFT)

        arriving, self.left_at = await self._threads.read(work)
        self.is_arriving = arriving > 0

    def refusal(self, session_id: str, op: str = "") -> RequestError | None:
        """Return the error for a request of this session, or None if the state of the move allows
        it.

        The requests of a move itself are always allowed.
        """
        if op in ALONE or (op in BESIDE and self.is_arriving):
            return None
        if self.left_at:
            day = time.strftime("%Y-%m-%d", time.localtime(self.left_at))
            hint = "ask for an invite on the device that moved it: confide device invite NAME"
            return RequestError("unavailable", f"{HAS_LEFT} on {day}", hint)
        if self.is_arriving:
            hint = "run the same confide daemon move again on the device that began it"
            return RequestError("unavailable", "this memory is being moved here, which is not complete", hint)
        if self._holder and self._holder != session_id:
            return RequestError("unavailable", "this memory is being moved to another daemon", "try again in a moment")
        return None

    # At the source

    async def read(self, look: Callable[[MovingTable], _T]) -> _T:
        """Run a function on the tables of the move, in one read transaction, and return its result."""

        def work(store: Store) -> _T:
            with store.reading():
                return look(store.tables(MovingTable))

        return await self._threads.read(work)

    async def revisions(self, after: int, *, texts: bool) -> tuple[list[MovedRevision], int]:
        """Return a page of the revisions that follow the change with number `after`, and the number
        of all revisions. With `texts`, the page includes their texts.
        """
        most = PAGE_TEXTS if texts else PAGE_NAMES
        return await self.read(
            lambda table: (
                table.revisions(after, texts=texts, most=most, most_bytes=PAGE_BYTES),
                table.revision_count(),
            )
        )

    def hold(self, session: str) -> None:
        """Reserve the space for this session: the daemon refuses the requests of all others.

        Raise RequestError if another session holds it.
        """
        if self._holder not in ("", session):
            raise RequestError("conflict", "another device is moving this memory", "wait until it has ended")
        self._holder = session

    def on_session_end(self, session_id: str) -> None:
        """Release the space if the session with this id had reserved it."""
        if self._holder == session_id:
            self._holder = ""

    async def changes(self) -> int:
        """Return the number of all changes ever made in the space, which only grows."""
        return await self._threads.read(lambda store: store.lives.changes())

    async def leave(self, changes: int) -> None:
        """Close the space for good after its move; its data stays.

        Raise RequestError if the space has other than `changes` changes now, or still waits for
        tasks of an earlier move.
        """
        now = self.left_at or time.time()

        def work(store: Store) -> None:
            with store.writing():
                if store.marks.find(PARTS_AWAITED):
                    hint = "confide daemon move alone brings them; confide daemon move --without-tasks gives them up"
                    raise RequestError("conflict", "tasks are still at the daemon that this memory came from", hint)
                more = store.lives.changes() - changes
                if more < 0 and not self.left_at:
                    hint = "its operator takes it away: what was moved is at the new daemon"
                    raise RequestError("conflict", "this daemon was put back from a copy made before the move", hint)
                if more and not self.left_at:
                    hint = "the device that made them can write them to a folder: confide export"
                    raise RequestError("conflict", f"{more:,} changes were made here since the move", hint)
                store.marks.put(SPACE_LEFT, now)

        await self._threads.write(work)
        self.left_at = now

    # At the target

    async def begin(self) -> None:
        """Start to receive a space, or continue an interrupted move; refuse all other requests from
        now on.

        Raise RequestError if the space has data that no move brought, or was moved away.
        """

        def work(store: Store) -> None:
            with store.writing():
                if store.marks.find(ARRIVING):
                    return
                arrived = store.marks.find(ARRIVED)
                # The move was complete, but its device did not get the answer, or has found more to
                # send.
                is_again = arrived > 0 and arrived == _count(store)
                if not is_again:
                    _check_empty(store)
                store.marks.put(ARRIVING, time.time())

        if self.left_at:
            hint = "a move goes into a new one: confided invite NAME"
            raise RequestError("conflict", "the memory of this space was moved away", hint)
        await self._threads.write(work)
        self.is_arriving = True

    def require_arriving(self) -> None:
        """Raise RequestError unless this space is being received from another daemon."""
        if not self.is_arriving:
            raise RequestError("conflict", "no move into this space is under way", "run confide daemon move again")

    async def take(self, load: Load) -> None:
        """Write the received data in one transaction. Raise SpaceFullError if the space has no room
        for it, or StorageError if the disk fails.
        """
        try:
            await self._threads.write(lambda store: self._take(store, load))
        finally:
            self._index.note_change()

    def _take(self, store: Store, load: Load) -> None:
        with store.writing():
            store.require_room()
            newest: dict[int, str | None] = {}
            for one, text in load.revisions:
                origin = provenance.old_text_origin(one.project, one.path, text)
                if one.made is not None:
                    origin = TextOrigin(one.made, tuple(one.doubted), one.by or one.made)
                document, is_newest = store.tables(MovingTable).take(one, text, origin)
                if is_newest:
                    newest[document] = text
                if text is not None:
                    provenance.remark(store, document, one.path, text, origin)
            for dropped in load.dropped:
                store.tables(MovingTable).drop(*dropped)
            trusting = [store.documents.find(known.project, known.path) for known in load.documents if known.trusted]
            for known in load.documents:
                store.tables(MovingTable).take_document(known)
            for row in store.documents.by_id(list(newest)):
                self._index.derivation.keep(store, row, newest[row.id], time.time())
            for row in store.documents.by_id([row.id for row in trusting if row is not None and row.id not in newest]):
                # The list of trusted parts arrived after the text that it belongs to.
                found = store.documents.revision(row.id, row.revision)
                self._index.derivation.keep(store, row, None if found is None else found.text, time.time())
            for session in load.sessions:
                store.tables(MovingTable).take_session(session)
            for link in load.links:
                store.projects.add_link(link.one, link.other, now=link.time / 1_000_000)

    async def end(self, revisions: int, records: int, *, awaits_tasks: bool) -> int:
        """Complete the move if all texts match their hashes, and return the number of texts that do
        not.

        With `awaits_tasks`, the daemon receives the tasks once the source is closed, and starts no
        task before.

        Raise RequestError if the number of revisions or of sealed records differs from the given
        one.
        """
        damaged, after = 0, 0
        while page := (await self.revisions(after, texts=True))[0]:
            damaged += await asyncio.to_thread(_count_damaged, page)
            after = page[-1].id
        if damaged:
            return damaged

        def work(store: Store) -> None:
            with store.writing():
                here = (store.tables(MovingTable).revision_count(), store.sealed_records.count())
                if here != (revisions, records):
                    problem = (
                        f"{here[0]:,} revisions and {here[1]:,} secrets are here, not {revisions:,} and {records:,}"
                    )
                    raise RequestError("conflict", problem, "run confide daemon move again")
                store.marks.put(ARRIVING, 0.0)
                store.marks.put(PARTS_AWAITED, time.time() if awaits_tasks else 0.0)
                store.marks.put(ARRIVED, float(_count(store)))

        await self._threads.write(work)
        self.is_arriving = False
        return 0


def _check_empty(store: Store) -> None:
    if not store.lives.is_empty():
        hint = "a move goes into a new one: confided invite NAME; to merge: confide export, join, import"
        raise RequestError("conflict", "there is memory in this space already", hint)


def _count(store: Store) -> int:
    return store.lives.changes() + 1  # never 0, which means no move


def _count_damaged(page: Sequence[MovedRevision]) -> int:
    return sum(not is_whole(one) for one in page if one.hash)
