"""The history of documents. A space keeps every revision and, for a limited time, the texts of
deleted documents.

Deleting a document keeps its texts, so that it can be restored, until a daily sweep removes texts
that were deleted too long ago. Devices are notified and delete their files.

Forgetting is different: no device deletes its file, and the space keeps no text. So that a device
that still has the file does not bring it back with its next comparison, the space keeps the
forgotten names as the user gave them: a file, a folder or a glob, or a whole project.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from confide_crypto.errors import where
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_daemon.errors import BadNameError, DamagedError, ForgottenError, NotFoundError, StorageError
from confide_daemon.store.rows import DocumentRow, RevisionEntry
from confide_daemon.store.space_store import Store
from confide_daemon.store.threads import StoreThreads
from confide_memory import front_matter
from confide_memory.globs import matches, normal
from confide_memory.markdown_blocks import headings

log = logging.getLogger(__name__)

DELETED_DAYS = 90
MAX_DELETED = 500
DAY_S = 86_400.0
# Documents per transaction, so that other writes of the space do not wait long.
_SWEPT_AT_ONCE = 32
_LOOKED_AT = 500
# Limit for the texts that one listing compares to summarize each revision: 150 ms.
MAX_COMPARED_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Deleted:
    """A deleted document that can be restored. Times are in seconds since 1970."""

    path: str
    last: RevisionEntry  # the newest revision with a text
    author: str  # the author of the deletion
    deleted_at: float
    restorable_until: float


@dataclass(frozen=True, slots=True)
class Past:
    """A revision of a document, with a one-line summary of its changes."""

    entry: RevisionEntry
    summary: str


class DocumentHistory:
    def __init__(self, threads: StoreThreads, *, deleted_days: int, clock: Callable[[], float]) -> None:
        """Make the history of a space; `clock` returns seconds since 1970."""
        self._threads = threads
        self._keep_s = deleted_days * DAY_S
        self._clock = clock
        self._sweeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Remove old deleted texts now and then once a day, until `close` is called."""
        self._sweeping = asyncio.create_task(self._sweep_daily(), name="confide-sweep")

    async def close(self) -> None:
        """Stop the daily sweep after its current transaction."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)

    async def revisions(self, project: str, path: str, *, limit: int) -> list[RevisionEntry]:
        """Return the newest revisions of a document, newest first. Raises NotFoundError if it never
        existed or was deleted too long ago.
        """

        def work(store: Store) -> list[RevisionEntry]:
            with store.reading():
                row = store.documents.find(project, path)
                found = store.documents.revisions(row.id, limit=limit) if row is not None else []
            if not found:
                raise NotFoundError(
                    "nothing is known of such a document", hint="confide restore --list lists what can come back"
                )
            return found

        return await self._threads.read(work)

    async def past(self, project: str, path: str, *, limit: int) -> list[Past]:
        """Return the newest revisions of a document, newest first, each with a summary of its
        changes. Raises NotFoundError if it never existed or was deleted too long ago.
        """

        def work(store: Store) -> list[Past]:
            with store.reading():
                row = store.documents.find(project, path)
                # One more, to compare the oldest with.
                found = store.documents.revisions(row.id, limit=limit + 1) if row is not None else []
                if row is None or not found:
                    raise NotFoundError("nothing is known of such a document", hint="memory_search shows what there is")
                texts = _texts(store, row.id, found)
            return [
                Past(
                    entry,
                    _summary(entry, texts.get(entry.number), before, texts.get(before.number) if before else None),
                )
                for entry, before in zip(found[:limit], [*found[1:], None], strict=False)
            ]

        return await self._threads.read(work)

    async def list_deleted(self, project: str) -> list[Deleted]:
        """Return the deleted documents of a project that can be restored, last deleted first, at
        most `MAX_DELETED`.
        """
        return await self._threads.read(lambda store: self._find_deleted(store, project))

    def _find_deleted(self, store: Store, project: str) -> list[Deleted]:
        found = []
        with store.reading():
            for path in store.documents.deleted_paths(project, limit=MAX_DELETED):
                row = store.documents.find(project, path)
                assert row is not None
                last = next(
                    (entry for entry in store.documents.revisions(row.id, limit=_LOOKED_AT) if not entry.deleted), None
                )
                if last is not None and row.updated_at + self._keep_s > self._clock():
                    found.append(Deleted(path, last, row.author, row.updated_at, row.updated_at + self._keep_s))
        return found

    def restorable_until(self, deleted_at: float) -> float:
        """Return the time until which a document can be restored that was deleted at this time.
        Both are in seconds since 1970.
        """
        return deleted_at + self._keep_s

    async def sweep(self) -> int:
        """Remove the texts of documents that were deleted too long ago, and expired cached vectors.
        Return the number of these documents. Raises StorageError if the database cannot be written.

        A text is removed only if the clock says so at two sweeps, a day apart, in case the clock is
        wrong.
        """
        now = self._clock()

        def work(store: Store) -> int:
            with store.writing():
                store.vectors.thin_out(now=now)
                before = store.marks.confirm_clock(now) - self._keep_s
                return store.documents.forget_deleted(before, limit=_SWEPT_AT_ONCE)

        swept = 0
        while count := await self._threads.write(work):
            swept += count
        return swept

    async def _sweep_daily(self) -> None:
        while True:
            try:
                if swept := await self.sweep():
                    log.info("the texts of %d documents that were deleted long ago are removed", swept)
            except StorageError as error:
                raise_if_cancelled()
                log.error("what was deleted long ago could not be removed: %s", error)
            except Exception as error:
                raise_if_cancelled()
                # A bug must not end the sweep for good; the exception's text may quote anything.
                log.error("removing what was deleted long ago broke: %s", where(error))
            await asyncio.sleep(DAY_S)


def _texts(store: Store, document: int, entries: list[RevisionEntry]) -> dict[int, str]:
    """Return the texts of revisions by number, up to the limit of one listing, without damaged
    ones.
    """
    texts: dict[int, str] = {}
    size = 0
    for entry in entries:
        size += entry.bytes
        if size > MAX_COMPARED_BYTES:
            break
        with suppress(DamagedError):
            row = store.documents.revision(document, entry.number)
            if row is not None and row.text is not None:
                texts[entry.number] = row.text
    return texts


def _summary(entry: RevisionEntry, text: str | None, before: RevisionEntry | None, earlier: str | None) -> str:
    if entry.deleted:
        return "deleted"
    if before is None and entry.number == 1:
        return "created"
    if before is not None and before.deleted:
        return "restored"
    found = compare(earlier, text) if text is not None and earlier is not None else None
    return "" if found is None else str(found)


MAX_COMPARED = 1024 * 1024  # characters of both texts
MAX_NAMED = 5
MAX_NAME = 60


@dataclass(frozen=True, slots=True)
class RevisionDiff:
    """The differences between two revisions: the numbers of added and removed lines, the changed
    fields, and the headings under which lines changed (`under`).
    """

    added: int
    removed: int
    fields: tuple[str, ...] = ()
    under: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [f"+{self.added} -{self.removed} lines"]
        parts += [f"fields {_join_names(self.fields)}"] if self.fields else []
        parts += [f"under {_join_names(self.under)}"] if self.under else []
        return "; ".join(parts)


def compare(before: str, after: str) -> RevisionDiff | None:
    """Return the differences between two texts, or None if they are too large. The position of a
    line does not count, so a moved line is no difference.
    """
    if len(before) + len(after) > MAX_COMPARED:
        return None
    old, new = front_matter.parse(before), front_matter.parse(after)
    names = list(dict.fromkeys([*old.fields, *new.fields]))
    fields = [name for name in names if old.fields.get(name, ...) != new.fields.get(name, ...)]
    added, under_new = _only(new.body, old.body)
    removed, under_old = _only(old.body, new.body)
    head_added, head_removed = _only(new.head, old.head)[0], _only(old.head, new.head)[0]
    under = tuple(dict.fromkeys([*under_new, *under_old]))
    return RevisionDiff(added + head_added, removed + head_removed, tuple(fields), under)


def _only(text: str, other: str) -> tuple[int, list[str]]:
    """Return the number of lines that only this text has, and the headings above them."""
    there = Counter(other.splitlines())
    titles = {heading.line: heading.title for heading in headings(text)}
    count, under, title = 0, [], ""
    for number, line in enumerate(text.splitlines()):
        title = titles.get(number, title)
        if there[line] > 0:
            there[line] -= 1
        elif line.strip():
            count += 1
            under += [title] if title else []
    return count, under


def _join_names(names: tuple[str, ...]) -> str:
    shown = ", ".join(name[:MAX_NAME] for name in names[:MAX_NAMED])
    return f"{shown}, ..." if len(names) > MAX_NAMED else shown


EVERYTHING: Final = ""
"""The name that stands for the whole project."""
MOST_NAMES: Final = 1000
"""Limit per project: each name is compared with the path of each write."""
FORGOTTEN_AT_ONCE: Final = 64
"""Documents per transaction, so that other writes of the space do not wait long."""
MOST_FORGOTTEN_LISTED: Final = 500
_MARK: Final = "forgotten "


@dataclass(frozen=True, slots=True)
class ForgetStep:
    """The result of one step of forgetting documents.

    Attributes:
        documents: the paths that this step removed; in a dry run, the paths that it would remove.
        total: the number of documents that match the names.
        is_complete: True if no matching document is left.
    """

    documents: tuple[str, ...]
    total: int
    is_complete: bool


def forgotten_names(store: Store, project: str) -> list[str]:
    """Return the names that a user asked to forget in a project. The project accepts no document
    that matches one of them.
    """
    return [json.loads(mark.removeprefix(_MARK))[1] for mark in store.marks.names_with_prefix(_mark_name(project))]


def is_forgotten(store: Store, project: str, path: str) -> bool:
    """Return True if a user asked to forget this path in the project, which then accepts no
    document with it.
    """
    return store.forgettings.has_name(project, path) or any(
        matches(path, name) for name in forgotten_names(store, project)
    )


def check_not_forgotten(store: Store, project: str, path: str, text: str) -> None:
    """Raise ForgottenError if a user asked to forget this path in the project, or this text."""
    if is_forgotten(store, project, path):
        raise ForgottenError
    if store.forgettings.has_text(text):
        raise ForgottenError(of_text=True)


def note_forgotten(store: Store, project: str, asked: Sequence[str]) -> None:
    """Record the names that a user asked to forget, within the caller's transaction. Raises
    BadNameError if the project then has too many.
    """
    known = {*forgotten_names(store, project), *map(normal, asked)}
    if len(known) > MOST_NAMES:
        raise BadNameError(
            f"a project has at most {MOST_NAMES:,} names that are forgotten", hint="name a folder, or a glob"
        )
    for name in asked:
        store.marks.put(_mark_name(project, normal(name)), time.time())


def undo_forgotten(store: Store, project: str, asked: Sequence[str]) -> tuple[str, ...]:
    """Accept documents with these forgotten names again; the name of the whole project stands for
    all. Return the names that had been forgotten.
    """
    wanted = set(map(normal, asked))
    with store.writing():
        found = [name for name in forgotten_names(store, project) if EVERYTHING in wanted or name in wanted]
        for name in found:
            store.marks.remove(_mark_name(project, name))
    return tuple(found)


def documents_named(
    store: Store, project: str, asked: Sequence[str], *, reaches: Callable[[str], bool]
) -> list[DocumentRow]:
    """Return the memory documents that match these names, including deleted ones whose texts are
    still stored. `reaches` returns True for the paths that the client may access.
    """
    rows = [row for row in store.documents.list_documents(frozenset((project,))) if row.source != "sessions"]
    found = [row for row in rows if reaches(row.path) and any(matches(row.path, name) for name in asked)]
    return [row for row in found if not row.deleted or store.documents.revisions(row.id, limit=1)]


def _mark_name(project: str, *name: str) -> str:
    """Return the name of a mark, or the common prefix of a project's marks."""
    listed = json.dumps([project, *name], ensure_ascii=False)
    return _MARK + (listed if name else f"{listed[:-1]}, ")
