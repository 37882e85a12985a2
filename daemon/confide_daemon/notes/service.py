"""The notes of one space: written, found by their ids, changed in single fields."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from confide_daemon.documents import check_path, check_text
from confide_daemon.errors import NotFoundError
from confide_daemon.notes import entities, front_matter, past
from confide_daemon.notes import note as notes
from confide_daemon.notes.draft import Draft
from confide_daemon.notes.duplicates import Look
from confide_daemon.notes.intake import Intake, Taken
from confide_daemon.notes.note import Note
from confide_daemon.projects import GLOBAL_PROJECT
from confide_daemon.results import PutResult
from confide_daemon.store import EntityRow, NoteCounts, NoteFilter, NoteList, NoteRow, RelationRow, Store
from confide_daemon.threads import StoreThreads
from confide_daemon.writes import Operation, Writer

T = TypeVar("T")


class Change(Protocol):
    """Runs a write of the space in the thread that writes."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


@dataclass(frozen=True, slots=True)
class Stored:
    """What storing a note came to.

    Attributes:
        result: of the write; None where a note that says exactly the same was there already.
        row: the note, new or not.
    """

    row: NoteRow
    result: PutResult | None


@dataclass(frozen=True, slots=True)
class FullNote:
    """A note with all there is to know of it; `relations` in both directions, between notes of the projects asked for."""

    row: NoteRow
    note: Note
    text: str
    relations: list[RelationRow]
    related: dict[str, NoteRow]  # the notes at the other ends, by id


class Notes:
    """For one space, until it is closed."""

    def __init__(
        self,
        threads: StoreThreads,
        writer: Writer,
        change: Change,
    ) -> None:
        """`change` is the space's."""
        self._threads = threads
        self._writer = writer
        self._change = change

    async def store(
        self, draft: Draft, *, project: str, author: str, operation: Operation | None = None, look: Look | None = None
    ) -> Stored:
        """Writes a new note, unless its place has one that says exactly the same.

        Args:
            look: sees to the vectors of its pieces.

        Raises:
            InvalidPathError, InvalidTextError, TooLargeError, StorageError.
            OperationError: the operation's id was used for another change.
        """
        seed = operation.id.encode() if operation else os.urandom(16)
        identity, path = draft.named(seed)
        scope = "task" if draft.task_id else "global" if project == GLOBAL_PROJECT else "project"
        text = check_text(draft.text(identity, scope))
        check_path(path)

        def work(store: Store) -> Stored:
            if operation is None or store.operation(operation.id) is None:
                twin = store.note_twin(project, draft.task_id, notes.digest_of(draft.body))
                if twin is not None:
                    return Stored(twin, None)
            result = self._writer.create(project, path, text, author=author, operation=operation)
            row = _row_at(store, project, path)
            return Stored(row, result)

        return await (self._written(work) if look is None else self._threads.write(work))

    async def was_made(self, operation: Operation | None) -> bool:
        """Whether a change under this id was made before."""
        if operation is None:
            return False
        return await self._threads.read(lambda store: store.operation(operation.id) is not None)

    async def take(self, drafts: Sequence[Draft], intake: Intake, *, is_dry: bool = False) -> list[Taken]:
        """Takes in notes from elsewhere, which bring their ids, in one transaction; a dry run writes nothing.

        Raises:
            StorageError: nothing was written.
        """
        if is_dry:
            return await self._threads.read(lambda store: intake.try_out(store, drafts))
        return await self._written(lambda _store: intake.take(self._writer, drafts))

    async def get(self, identity: str, projects: frozenset[str] | None) -> FullNote:
        """A note by its id.

        Args:
            projects: where it may lie, and where notes that it is related with may; None: anywhere.

        Raises:
            NotFoundError: there is none there.
        """
        return await self._threads.read(lambda store: _full(store, _found(store, identity, projects), projects))

    async def at(self, project: str, path: str, projects: frozenset[str] | None) -> FullNote:
        """The note that a document is. Raises as `get`."""
        return await self._threads.read(lambda store: _full(store, _row_at(store, project, path), projects))

    async def place(self, identity: str, projects: frozenset[str] | None) -> tuple[str, str]:
        """(project, path) of a note, or of one that was deleted and can come back. Raises as `get`."""
        return await self._threads.read(lambda store: past.place(store, identity, projects))

    async def row(self, identity: str, projects: frozenset[str] | None) -> NoteRow:
        """What is listed of a note. Raises as `get`."""
        return await self._threads.read(lambda store: _found(store, identity, projects))

    async def page(self, wanted: NoteFilter, *, sort: str, limit: int, offset: int) -> NoteList:
        """A page of the notes that pass, by `store.note_listing.SORTS`."""

        def work(store: Store) -> NoteList:
            with store.reading():
                return store.note_list(wanted, sort=sort, limit=limit, offset=offset)

        return await self._threads.read(work)

    async def newest(self, projects: frozenset[str] | None, *, limit: int) -> list[NoteRow]:
        """The notes that were changed last, those of tasks apart."""
        found = await self._threads.read(lambda store: _listed(store, projects, "updated", limit))
        return [row for row, _ in found.notes]

    async def important(self, level: str, projects: frozenset[str] | None, *, limit: int) -> list[tuple[NoteRow, str]]:
        """The notes of one level (`note.IMPORTANCE`) with their texts, the last changed first; those of tasks apart."""

        def work(store: Store) -> list[tuple[NoteRow, str]]:
            with store.reading():
                # The levels above it come first, so that a few of them do not push these out.
                listed = _listed(store, projects, "importance", limit * len(notes.IMPORTANCE))
                chosen = [row for row, _ in listed.notes if notes.level_of(row.importance) == level][:limit]
                texts = [store.revision(row.document, row.revision) for row in chosen]
            pairs = zip(chosen, texts, strict=True)
            return [(row, front_matter.split(text.text)[1].strip("\r\n")) for row, text in pairs if text and text.text]

        return await self._threads.read(work)

    async def superseding(self, row: NoteRow, projects: frozenset[str] | None) -> list[str]:
        """The ids of the notes there that say they supersede it, the newest first."""
        found = await self._threads.read(lambda store: store.supersessions([row.document], projects))
        return [one.id for one in found]

    async def entities(
        self, projects: frozenset[str] | None, *, tasks: bool | None = None, type: str | None = None
    ) -> list[EntityRow]:
        """What the notes are about, the most written about first; see `Store.entities`."""

        def work(store: Store) -> list[EntityRow]:
            with store.reading():
                return store.entities(projects, tasks=tasks, type=type)

        return await self._threads.read(work)

    async def entities_like(
        self, query: str, projects: frozenset[str] | None, *, tasks: bool, limit: int
    ) -> list[tuple[EntityRow, float]]:
        """(entity, similarity in 0 to 1) of those whose names are like the query; see `entities.search`."""
        return await self._threads.read(lambda store: entities.search(store, query, projects, tasks=tasks, limit=limit))

    async def counts(self, projects: frozenset[str] | None) -> NoteCounts:
        """How many notes there are in the projects."""
        return await self._threads.read(lambda store: store.note_counts(projects))

    async def edit(
        self,
        row: NoteRow,
        change: Callable[[str], str],
        *,
        author: str,
        base: int | None = None,
        operation: Operation | None = None,
        check: Callable[[Store], None] | None = None,
    ) -> PutResult:
        """Changes a note's document, from its text to another.

        Args:
            check: raises where the change must not be made, as things are right before; not asked about one that was made already.

        Raises:
            NotFoundError: it is gone.
            ConflictError: it has another revision than `base`.
            UnreadableError, InvalidTextError, TooLargeError, StorageError, OperationError.
        """

        def work(store: Store) -> PutResult:
            if check is not None and (operation is None or store.operation(operation.id) is None):
                check(store)
            return self._writer.edit(row.project, row.path, change, author=author, base=base, operation=operation)

        return await self._written(work)

    async def _written(self, work: Callable[[Store], T]) -> T:
        return await self._change(lambda: work(self._writer.store))


def _listed(store: Store, projects: frozenset[str] | None, sort: str, limit: int) -> NoteList:
    return store.note_list(NoteFilter(projects=projects), sort=sort, limit=limit, offset=0)


def now() -> float:
    """Seconds since 1970, whole: notes are dated by the second."""
    return float(int(time.time()))


def _found(store: Store, identity: str, projects: frozenset[str] | None) -> NoteRow:
    row = store.note(identity, projects)
    if row is None:
        raise NotFoundError("there is no note of that id", hint="memory_search and memory_list show ids")
    return row


def _full(store: Store, row: NoteRow, projects: frozenset[str] | None) -> FullNote:
    with store.reading():
        document = store.document(row.project, row.path)
        revision = store.revision(row.document, row.revision) if document is not None else None
        if revision is None or revision.text is None:
            raise NotFoundError("there is no note of that id", hint="it may have been deleted just now")
        relations = store.note_relations([row.id], projects)
        others = {end for one in relations for end in (one.note, one.other) if end != row.id}
        related = store.notes_named(sorted(others), projects)
    return FullNote(row, notes.read(row.project, row.path, revision.text), revision.text, relations, related)


def _row_at(store: Store, project: str, path: str) -> NoteRow:
    document = store.document(project, path)
    row = store.note_of(document.id) if document is not None else None
    if row is None:
        raise NotFoundError("the note is gone", hint="it was stored before, and has been deleted since")
    return row
