"""Finds stored entries about actions of an agent: an edit of a file, a command, a failure.

The action that an entry is about is read from its text (`confide_memory.actions`), once for each
revision, and kept in memory. The first request for a project reads its whole memory, later ones
only what has changed. Few entries name an action; more describe a failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from confide_daemon.errors import DamagedError
from confide_daemon.store.rows import DocumentRow
from confide_daemon.store.space_store import Store
from confide_daemon.store.threads import StoreThreads
from confide_memory.actions.triggers import StatedEntry, entries, order
from confide_memory.classes import UNTRUSTED

MOST_AT_ONCE: Final = 40
"""Documents that are read without letting other readers in between: 50 ms."""
MOST_PROJECTS: Final = 16
"""Projects whose entries are kept in memory: those that were asked for last."""
MOST_OF_PROJECT: Final = 2000
"""Entries of a project that are kept in memory, from the last changed documents."""
MOST_TEXT: Final = 512 * 1024
"""Characters of a document that are read: longer ones are no notes."""


@dataclass(frozen=True, slots=True)
class ActionNote:
    """An entry about an action, with its document and its trust class. `id` identifies the note
    that contains the entry; None if the document is not a note.
    """

    row: DocumentRow
    id: str | None
    entry: StatedEntry
    class_: str


@dataclass(slots=True)
class _Held:
    """The entries of one project: by document, its revision and its entries, last changed last."""

    last_change: int = 0  # the number of the last change that was read
    documents: dict[int, tuple[int, list[StatedEntry]]] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def forget_oldest(self) -> None:
        """Keep at most `MOST_OF_PROJECT` entries, and rather those that name what they concern."""
        total = sum(len(found) for _, found in self.documents.values())
        for document, (revision, found) in list(self.documents.items()) if total > MOST_OF_PROJECT else ():
            named = [entry for entry in found if not entry.terms]
            self.documents[document] = revision, named
            total -= len(found) - len(named)
            if total <= MOST_OF_PROJECT:
                break
        while total > MOST_OF_PROJECT:
            total -= len(self.documents.pop(next(iter(self.documents)))[1])


class ActionNotes:
    """The entries about actions in a space's projects, cached in memory."""

    def __init__(self, threads: StoreThreads) -> None:
        self._threads = threads
        self._projects: dict[str, _Held] = {}

    async def of(self, project: str, *, limit: int) -> list[ActionNote]:
        """Return a project's trusted entries about actions, at most `limit`, in the order of
        `confide_memory.actions.triggers.order`. Superseded notes are left out.
        """
        held = self._projects.pop(project, None) or _Held()
        self._projects[project] = held
        while len(self._projects) > MOST_PROJECTS:
            del self._projects[next(iter(self._projects))]
        async with held.lock:
            while await self._threads.read(lambda store: _read_on(store, project, held)):
                pass
            return await self._threads.read(lambda store: _trusted_notes(store, held, limit))


def _read_on(store: Store, project: str, held: _Held) -> bool:
    """Read the next changed documents; return True if there may be more."""
    with store.reading():
        rows = store.documents.changes_after(project, below="", after=held.last_change, since=0.0, limit=MOST_AT_ONCE)
        for row in rows:
            held.documents.pop(row.document, None)
            found = [] if row.deleted or row.bytes > MOST_TEXT else _entries(store, row.document, row.revision)
            if found:
                held.documents[row.document] = row.revision, found
        if rows:
            held.last_change = rows[-1].change
            held.forget_oldest()
        return len(rows) == MOST_AT_ONCE


def _entries(store: Store, document: int, revision: int) -> list[StatedEntry]:
    with suppress(DamagedError):
        row = store.documents.revision(document, revision)
        if row is not None and row.text is not None:
            return entries(row.text)
    return []


def _trusted_notes(store: Store, held: _Held, limit: int) -> list[ActionNote]:
    with store.reading():
        documents = list(reversed(held.documents))
        rows = {row.id: row for row in store.documents.by_id(documents)}
        for erased in set(documents) - rows.keys():
            del held.documents[erased]  # what was erased for good stays nowhere
        superseded = store.notes.find_superseded(documents, None)
        notes = store.notes.of_documents(documents)
        doubted: dict[int, list[tuple[int, int]]] = {}
        for document, first, last in store.pieces.doubted_lines(documents):
            doubted.setdefault(document, []).append((first, last))
        found: list[ActionNote] = []
        for document in documents:
            row = rows.get(document)
            if row is None or row.deleted or document in superseded:
                continue
            revision, parts = held.documents[document]
            if row.revision != revision:
                continue  # it has changed since: the next question reads it
            note = notes.get(document)
            for entry in parts:
                if row.made != UNTRUSTED and not _is_among(doubted.get(document, ()), entry):
                    found.append(ActionNote(row, note.id if note else None, entry, row.made))
        at = order([note.entry for note in found])
        return [found[number] for number in sorted(range(len(found)), key=at.__getitem__)][:limit]


def _is_among(lines: Iterable[tuple[int, int]], entry: StatedEntry) -> bool:
    return any(first <= entry.last_line and entry.line <= last for first, last in lines)
