"""Lists of memory documents and of recent changes, for users who browse instead of searching."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace

from confide_daemon.documents.change_numbers import ChangeNumbers
from confide_daemon.errors import DamagedError
from confide_daemon.store.rows import ChangeRow, HitRow, ListedRow
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.mention_table import LinkRow
from confide_daemon.store.tables.overview_queries import DayRow, StatedRelation
from confide_daemon.store.threads import StoreThreads
from confide_memory import front_matter, note
from confide_memory.documents import GLOBAL_PROJECT, MEMORY_FILES, is_log, is_note
from confide_memory.note_names import first_words, title_of
from confide_memory.wire.revisions import MAX_FOLDERS

MAX_READ_BYTES = 4 * 1024 * 1024
"""Limit for the texts that one listing reads to show their beginnings: 100 ms. Documents after it
are listed without words.
"""
MAX_WORDS = 160
MOST_OF_HEAD = 16
"""Chunks of one `MEMORY.md` in a briefing: more than its budget has room for."""
MOST_NEWEST = 32
MOST_OF_FILE = 2
"""Chunks from the end of a file that is not a log: the end of such a file is not necessarily what
changed.
"""


@dataclass(frozen=True, slots=True)
class Listed:
    """A memory document in a list. `title` is the title of a note, otherwise the beginning of the
    text. `lines` is the number of lines, or None if the text was not read.
    """

    row: ListedRow
    title: str
    lines: int | None
    words: str = ""
    """The first line that says more than the title."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list of documents.

    Attributes:
        total: the number of documents in the whole list.
        offset: the number of documents before this page.
        folders: the folders directly below the listed one, each with the number of its documents.
    """

    documents: list[Listed]
    total: int
    offset: int
    folders: list[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class PastPage:
    """A page of a list of documents as they were at an earlier time.

    Attributes:
        documents: the documents, each with True if its text is still the same now.
        total: the number of documents in the whole list.
        lost_documents: how many documents of that time were deleted since and cannot be restored.
    """

    documents: list[tuple[Listed, bool]]
    total: int
    lost_documents: int


@dataclass(frozen=True, slots=True)
class ChangedRevision:
    """A revision, and the first line that it added. The line is "" if it added none, or if the
    texts were not read.
    """

    row: ChangeRow
    words: str


@dataclass(frozen=True, slots=True)
class Briefing:
    """Trusted chunks that an agent receives at the start of a session.

    Attributes:
        head: the beginning of the project's `MEMORY.md`, followed by that of the global project.
        newest: the last chunks of each file of the project that changed recently.
    """

    head: list[HitRow]
    newest: list[HitRow]


class Listing:
    """Lists the documents and changes of an open space."""

    def __init__(self, threads: StoreThreads) -> None:
        self._threads = threads

    async def documents(
        self,
        project: str,
        *,
        below: str,
        limit: int,
        offset: int = 0,
        sort: str = "updated",
        around: str = "",
        with_folders: bool = False,
    ) -> Page:
        """Return a page of the documents in a project's memory.

        Args:
            below: a path, or the folder that contains the documents; "" for all.
            sort: `updated`, `path` or `size`.
            around: a path; the page begins with the document that precedes it in the order of
                paths.
            with_folders: True to count the documents in each folder directly below.
        """

        def work(store: Store) -> Page:
            with store.reading():
                documents, first, order = store.documents, offset, sort
                if around:
                    order = "path"
                    first = max(0, documents.count_below(project, below=below, before=around) - 1)
                rows = documents.page(project, below=below, limit=limit, offset=first, sort=order)
                reading = _TextBudget(store)
                found = [_list_item(row, reading.text(row.document, row.revision, row.bytes)) for row in rows]
                folders = documents.folders(project, below=below, limit=MAX_FOLDERS) if with_folders else []
                return Page(found, documents.count_below(project, below=below), first, folders)

        return await self._threads.read(work)

    async def documents_at(self, project: str, *, below: str, moment: float, limit: int, offset: int) -> PastPage:
        """Return a page of a project's memory as it was at a time (seconds since 1970), sorted by
        path.
        """

        def work(store: Store) -> PastPage:
            with store.reading():
                reading = _TextBudget(store)
                rows, total = store.documents.page_at(project, below=below, moment=moment, limit=limit, offset=offset)
                found = [
                    (_list_item(row, reading.text(row.document, row.revision, row.bytes)), is_current)
                    for row, is_current in rows
                ]
                return PastPage(found, total, store.documents.count_lost(project, below=below, since=moment))

        return await self._threads.read(work)

    async def changes(
        self, project: str, *, below: str, since: float, limit: int, until: float = float("inf")
    ) -> list[ChangedRevision]:
        """Return the newest revisions in a project's memory, newest first. `since` and `until` are
        in seconds since 1970.
        """

        def work(store: Store) -> list[ChangedRevision]:
            with store.reading():
                reading, numbers = _TextBudget(store), _numbers(store)
                return [
                    _with_client_number(
                        _changed_revision(row, reading, store.documents.before(row.document, row.revision)), numbers
                    )
                    for row in store.documents.changes(project, below=below, since=since, until=until, limit=limit)
                ]

        return await self._threads.read(work)

    async def briefing(self, project: str, *, with_global: bool) -> Briefing:
        """Return the chunks that an agent receives at the start of a session. Notes are left out,
        because the agent receives them as a list.
        """

        def work(store: Store) -> Briefing:
            with store.reading():
                projects = dict.fromkeys((project, GLOBAL_PROJECT) if with_global else (project,))
                files = [store.documents.find(name, path) for name in projects for path in MEMORY_FILES]
                head = [
                    store.pieces.trusted_pieces(row.id, limit=MOST_OF_HEAD, is_from_end=False)
                    for row in files
                    if row is not None and not row.deleted
                ]
                newest = _ends(store, project)
                rows = store.pieces.hits([*itertools.chain(*head), *newest])
                return Briefing([rows[one] for pieces in head for one in pieces], [rows[one] for one in newest])

        return await self._threads.read(work)

    async def changes_after(
        self, project: str, *, below: str, after: int, since: float, limit: int, is_limited: bool
    ) -> list[tuple[ChangedRevision, str | None]]:
        """Return the documents in a project's memory that changed after the change number `after`,
        in the order of their changes, in their current state.

        Each comes with the id of the note that it is, or was before its deletion; None if it is not
        a note. `is_limited` is True if the client may access only a part of the space.
        """

        def work(store: Store) -> list[tuple[ChangedRevision, str | None]]:
            with store.reading():
                reading, numbers = _TextBudget(store), _numbers(store)
                number = numbers.from_client(after, is_limited=is_limited)
                rows = store.documents.changes_after(project, below=below, after=number, since=since, limit=limit)
                return [
                    (
                        _with_client_number(ChangedRevision(row, ""), numbers),
                        row.id or _former_id(row, project, reading, store),
                    )
                    for row in rows
                ]

        return await self._threads.read(work)

    async def days(
        self, projects: frozenset[str] | None, sources: frozenset[str] | None, *, since: float, zone_s: int, limit: int
    ) -> tuple[list[DayRow], list[tuple[int | None, int]]]:
        """Return the number of changes and of recalls by day, and the number of recalls by the age
        of the recalled documents (`OverviewTable`). Only projects and sources that the client may
        access are counted.
        """

        def work(store: Store) -> tuple[list[DayRow], list[tuple[int | None, int]]]:
            with store.reading():
                days = store.overview.days(projects, sources, since=since, zone_s=zone_s, limit=limit)
                return days, store.overview.ages(projects, sources, now=time.time())

        return await self._threads.read(work)

    async def relations(self, project: str, projects: frozenset[str] | None, *, limit: int) -> list[StatedRelation]:
        """Return the relations between a project's notes and other notes that the client may
        access.
        """

        def work(store: Store) -> list[StatedRelation]:
            with store.reading():
                return store.overview.relations(project, projects, limit=limit)

        return await self._threads.read(work)

    async def links(self, project: str, *, path: str, limit: int) -> list[LinkRow]:
        """Return the wiki links in a project's memory. With `path`, only the links from and to that
        document.
        """

        def work(store: Store) -> list[LinkRow]:
            with store.reading():
                if not path:
                    return store.mentions.links(project, limit=limit)
                found = store.documents.find(project, path)
                return [] if found is None else store.mentions.links_of(found.id, limit=limit)

        return await self._threads.read(work)


def _ends(store: Store, project: str) -> list[int]:
    """Return the last chunks of the last changed files: of a daily log as many as there is room
    for, of another file a few.
    """
    found: list[int] = []
    for row in store.documents.newest_files(project, limit=MOST_NEWEST):
        limit = MOST_NEWEST - len(found)
        found += store.pieces.trusted_pieces(
            row.id, limit=limit if is_log(row.path) else min(limit, MOST_OF_FILE), is_from_end=True
        )
        if len(found) >= MOST_NEWEST:
            break
    return found


def _numbers(store: Store) -> ChangeNumbers:
    return ChangeNumbers(store.lives.key() or bytes(32))


def _with_client_number(changed: ChangedRevision, numbers: ChangeNumbers) -> ChangedRevision:
    return replace(changed, row=replace(changed.row, change=numbers.to_client(changed.row.change)))


class _TextBudget:
    """Reads texts up to the limit of one listing."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._remaining = MAX_READ_BYTES

    def text(self, document: int, revision: int, size: int) -> str | None:
        """Return the text, or None for a deletion, a damaged text, or above the limit."""
        if size > self._remaining:
            return None
        with suppress(DamagedError):
            row = self._store.documents.revision(document, revision)
            text = row.text if row is not None else None
            self._remaining -= len(text or "")
            return text
        return None


def _former_id(row: ChangeRow, project: str, reading: _TextBudget, store: Store) -> str | None:
    """Return the id of the note that a deleted document was, from its last text."""
    if not row.deleted or not is_note(row.path):
        return None
    text = reading.text(row.document, store.documents.before(row.document, row.revision), 0)
    return None if text is None else note.read(project, row.path, text).id


def _list_item(row: ListedRow, text: str | None) -> Listed:
    body = front_matter.split(text or "")[1]
    title = (row.title or title_of(body))[:MAX_WORDS]
    lines = None if text is None else len(text.removesuffix("\n").split("\n"))
    return Listed(row, title, lines, first_words(body, besides=title)[:MAX_WORDS])


def _changed_revision(row: ChangeRow, reading: _TextBudget, before: int) -> ChangedRevision:
    text = None if row.deleted else reading.text(row.document, row.revision, row.bytes)
    if text is None:
        return ChangedRevision(row, "")
    earlier = reading.text(row.document, before, row.bytes) if before else ""
    there = Counter((earlier or "").splitlines())
    new = []
    for line in front_matter.split(text)[1].splitlines():
        if there[line] > 0:
            there[line] -= 1
        else:
            new.append(line)
    return ChangedRevision(row, title_of("\n".join(new))[:MAX_WORDS])
