"""The notes of one space: stores notes, finds them by id, and changes their fields."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from confide_daemon.documents.document_results import PutResult
from confide_daemon.documents.document_service import Documents
from confide_daemon.documents.provenance import BY_RULE
from confide_daemon.documents.writer import RepeatableChange, Writer
from confide_daemon.errors import NotFoundError, ToolError
from confide_daemon.notes.duplicates import Look
from confide_daemon.notes.note_edit import Draft
from confide_daemon.notes.twins import find_twin
from confide_daemon.retrieval.search.ranking import NoteSuccession
from confide_daemon.store.rows import (
    DocumentRow,
    EntityRow,
    LinkedRow,
    NoteCounts,
    NoteFilter,
    NoteList,
    NoteRow,
    RelationRow,
)
from confide_daemon.store.space_store import Store
from confide_daemon.store.threads import StoreThreads
from confide_memory import front_matter, note_names
from confide_memory import note as notes
from confide_memory.classes import DERIVED, TRUSTED, UNTRUSTED, lowest
from confide_memory.documents import check_path, check_text
from confide_memory.mentions import fold_name
from confide_memory.note import Note

# Least similarity of names; below it they share little but letters.
LEAST = 60.0
# Names that quick measures preselect for the thorough one, which takes 15 ms for 10,000 names; with
# preselection, 3 ms.
LOOKED_AT = 200


def matches(query: str, keys: Sequence[str], *, limit: int) -> list[tuple[str, float]]:
    """Return the names that are similar to the query, nearest first, as (name, similarity from 0 to
    1).
    """
    from rapidfuzz import fuzz, process, utils  # late: 3 MB, for what few ask

    names = dict(enumerate(utils.default_process(key) for key in keys))
    asked = utils.default_process(query)
    if len(names) > LOOKED_AT:
        within = [place for place, name in names.items() if asked in name or name in asked][:LOOKED_AT]
        like = process.extract(asked, names, scorer=fuzz.ratio, processor=None, limit=LOOKED_AT)
        like += process.extract(asked, names, scorer=fuzz.token_sort_ratio, processor=None, limit=LOOKED_AT)
        quick = {place for _, _, place in like}
        names = {place: names[place] for place in sorted(quick.union(within))}
    found = process.extract(asked, names, scorer=fuzz.WRatio, processor=None, limit=limit, score_cutoff=LEAST)
    return [(keys[place], round(score / 100, 3)) for _, score, place in found]


def search(
    store: Store, query: str, projects: frozenset[str] | None, *, tasks: bool, limit: int
) -> list[tuple[EntityRow, float]]:
    """Return the entities whose names are similar to the query, nearest first, as (entity,
    similarity from 0 to 1). Equally similar ones are sorted by their number of notes.
    """
    with store.reading():
        near = dict(matches(query, store.entities.keys(projects, tasks=tasks), limit=limit))
        # Count notes for these only: listing all 10,000 takes three times as long as finding
        # similar names.
        found = [(one, near[fold_name(one.name)]) for one in store.entities.among(list(near), projects, tasks=tasks)]
    return sorted(found, key=lambda pair: -pair[1])[:limit]


# Most notes that an error names for an ambiguous short id.
MOST_CANDIDATES = 5
MAX_DELETED = 10_000
# Most texts read to find notes whose file names do not contain the id.
MAX_READ = 200
# Longest chain of superseding notes that is followed; each step is an index lookup.
MAX_CHAIN = 1000
SUPERSEDES = "supersedes"
# Most links that are returned with a note.
MOST_LINKED = 100

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredNote:
    row: NoteRow  # the note, new or not
    result: PutResult | None  # of the write; None where a note that says exactly the same was there already
    is_known: bool = False  # it was there already, with or without the tags and relations that it was given now


@dataclass(frozen=True, slots=True)
class FullNote:
    """A note with its text, relations and links. `relations` contains those from and to the note,
    within the requested projects.
    """

    row: NoteRow
    note: Note
    text: str
    relations: list[RelationRow]
    related: dict[str, NoteRow]  # the notes at the other ends, by id
    linked: list[LinkedRow]  # the documents that it links to and that link to it


@dataclass(frozen=True, slots=True)
class Notes:
    """Reads and writes the notes of one space, until the space is closed."""

    _threads: StoreThreads
    _writer: Writer
    _documents: Documents

    async def store(
        self,
        draft: Draft,
        *,
        project: str,
        author: str,
        operation: RepeatableChange | None = None,
        look: Look | None = None,
        by: str = UNTRUSTED,
    ) -> StoredNote:
        """Store a new note. If a note in the same project and task already has the same content,
        store none; that note gets the tags and relations that it lacks.

        The content is the text, and the title and entity if the draft gives them.

        Args:
            look: the duplicate check of this note, which computes its vectors; None lets the
                indexer compute them.
            by: the trust class of the writer. It is lowered if the draft says that a rule created
                it.

        Raises InvalidPathError, InvalidTextError or TooLargeError if the note is not valid;
        OperationError if the operation's id was used for another change.
        """
        seed = operation.id.encode() if operation else os.urandom(16)
        identity, path = draft.id_and_path(seed)
        text = check_text(draft.text(identity, notes.scope_of(project, draft.task_id)))
        check_path(path)
        made = lowest((by, DERIVED)) if draft.source == BY_RULE else by

        def work(store: Store) -> StoredNote:
            if operation is None or store.operations.find(operation.id) is None:
                twin = find_twin(store, project, draft, by=made)
                if twin is not None and twin.change is None:
                    return StoredNote(twin.row, None, is_known=True)
                if twin is not None and twin.change is not None:
                    merged = self._writer.edit(project, twin.row.path, twin.change, author=author, by=made)
                    return StoredNote(_row_at(store, project, twin.row.path), merged, is_known=True)
            result = self._writer.create(project, path, text, author=author, operation=operation, by=made)
            row = _row_at(store, project, path)
            return StoredNote(row, result)

        return await (self._write(work) if look is None else self._threads.write(work))

    async def was_made(self, operation: RepeatableChange | None) -> bool:
        """Return True if a change with this operation's id was made before."""
        if operation is None:
            return False
        return await self._threads.read(lambda store: store.operations.find(operation.id) is not None)

    async def read(self, work: Callable[[Store], T]) -> T:
        """Run `work` on a reader thread and return its result."""
        return await self._threads.read(work)

    async def write(self, work: Callable[[Writer], T]) -> T:
        """Run `work`, which writes notes, on the writer thread and return its result. Raises
        StorageError if it could not write; nothing is stored then.
        """
        return await self._write(lambda _store: work(self._writer))

    async def get(self, identity: str, projects: frozenset[str] | None) -> FullNote:
        """Return the note with this id, which may be shortened. The note and its related notes must
        be in these projects (None for all).

        Raises NotFoundError if there is no such note; ToolError if a short id matches several
        notes.
        """
        return await self._threads.read(lambda store: _full(store, _require_note(store, identity, projects), projects))

    async def at(self, project: str, path: str, projects: frozenset[str] | None) -> FullNote:
        """Return the note whose document is at this path. Raises NotFoundError if there is none, or
        the client may not access it.
        """
        return await self._threads.read(lambda store: _full(store, _row_at(store, project, path), projects))

    async def place(self, identity: str, projects: frozenset[str] | None) -> tuple[str, str]:
        """Return (project, path) of the note with this id, which may be shortened. Also finds
        deleted notes that can be restored.

        Raises NotFoundError if there is no such note; ToolError if a short id matches several
        notes.
        """
        return await self._threads.read(lambda store: _place(store, identity, projects))

    async def row(self, identity: str, projects: frozenset[str] | None) -> NoteRow:
        """Return the fields of the note with this id, which may be shortened, as lists show them.

        Raises NotFoundError if there is no such note; ToolError if a short id matches several
        notes.
        """
        return await self._threads.read(lambda store: _require_note(store, identity, projects))

    async def short(self, identities: Sequence[str], projects: frozenset[str] | None) -> dict[str, str]:
        """Return a short form of each id that is unique among the notes of these projects (None for
        all).
        """
        return await self._threads.read(lambda store: store.notes.short(identities, projects))

    async def page(self, wanted: NoteFilter, *, sort: str, limit: int, offset: int) -> NoteList:
        """Return a page of the notes that match a filter, sorted by one of
        `store.tables.note_listing.SORTS`.
        """

        def work(store: Store) -> NoteList:
            with store.reading():
                return store.note_listing.page(wanted, sort=sort, limit=limit, offset=offset)

        return await self._threads.read(work)

    async def find_superseded(
        self, documents: Sequence[int], projects: frozenset[str] | None, *, classes: frozenset[str] | None
    ) -> frozenset[int]:
        """Return those of the documents whose notes are superseded by another note of these
        projects and trust classes (None for all).
        """

        def work(store: Store) -> frozenset[int]:
            with store.reading():
                succession = NoteSuccession.of(store, documents, projects, classes)
                return frozenset(one for one in documents if succession.above(one))

        return await self._threads.read(work) if documents else frozenset()

    async def newest(self, projects: frozenset[str] | None, *, limit: int) -> list[NoteRow]:
        """Return the notes that were changed last, without those of tasks."""
        found = await self._threads.read(lambda store: _list_notes(store, projects, "updated", limit))
        return [row for row, _ in found.notes]

    async def important(self, level: str, projects: frozenset[str] | None, *, limit: int) -> list[tuple[NoteRow, str]]:
        """Return trusted notes of one level of importance (`note.IMPORTANCE`) with their texts,
        last changed first, without those of tasks.
        """

        def work(store: Store) -> list[tuple[NoteRow, str]]:
            with store.reading():
                # Higher levels come first, so the page is large enough that they do not push these
                # out. These notes are shown unrequested, so untrusted ones are excluded.
                wanted = NoteFilter(projects=projects, classes=TRUSTED)
                most = limit * len(notes.IMPORTANCE)
                listed = store.note_listing.page(wanted, sort="importance", limit=most, offset=0)
                chosen = [row for row, _ in listed.notes if notes.level_of(row.importance) == level][:limit]
                texts = [store.documents.revision(row.document, row.revision) for row in chosen]
            pairs = zip(chosen, texts, strict=True)
            return [(row, front_matter.split(text.text)[1].strip("\r\n")) for row, text in pairs if text and text.text]

        return await self._threads.read(work)

    async def superseding(self, row: NoteRow, projects: frozenset[str] | None) -> list[str]:
        """Return the ids of the notes in these projects (None for all) that state that they
        supersede this one, newest first.
        """
        found = await self._threads.read(lambda store: store.notes.supersessions([row.document], projects))
        return [one.id for one in found]

    async def entities(
        self, projects: frozenset[str] | None, *, tasks: bool | None = None, type: str | None = None
    ) -> list[EntityRow]:
        """Return the entities of the notes, those with the most notes first. See `Store.entities`
        for the filters.
        """

        def work(store: Store) -> list[EntityRow]:
            with store.reading():
                return store.entities.list_entities(projects, tasks=tasks, type=type)

        return await self._threads.read(work)

    async def entities_like(
        self, query: str, projects: frozenset[str] | None, *, tasks: bool, limit: int
    ) -> list[tuple[EntityRow, float]]:
        """Return the entities whose names are similar to the query, nearest first, as (entity,
        similarity from 0 to 1).
        """
        return await self._threads.read(lambda store: search(store, query, projects, tasks=tasks, limit=limit))

    async def counts(self, projects: frozenset[str] | None) -> NoteCounts:
        """Return the numbers of notes in the projects (None for all)."""
        return await self._threads.read(lambda store: store.entities.note_counts(projects))

    async def edit(
        self,
        row: NoteRow,
        change: Callable[[str], str],
        *,
        author: str,
        base: int | None = None,
        operation: RepeatableChange | None = None,
        by: str = UNTRUSTED,
        check: Callable[[Store], None] | None = None,
    ) -> PutResult:
        """Replace the text of a note's document by the result of `change`, and return the new
        revision.

        `check` is called right before the change and may raise an error to prevent it. It is not
        called if the change with this operation's id was made before.

        Raises NotFoundError if the document does not exist; ConflictError if it is not at revision
        `base` (None for any); UnreadableError, InvalidTextError or TooLargeError if the new text is
        not valid.
        """

        def work(store: Store) -> PutResult:
            if check is not None and (operation is None or store.operations.find(operation.id) is None):
                check(store)
            return self._writer.edit(
                row.project, row.path, change, author=author, base=base, operation=operation, by=by
            )

        return await self._write(work)

    async def _write(self, work: Callable[[Store], T]) -> T:
        return await self._documents.change(lambda: work(self._writer.store))


def _list_notes(store: Store, projects: frozenset[str] | None, sort: str, limit: int) -> NoteList:
    return store.note_listing.page(NoteFilter(projects=projects), sort=sort, limit=limit, offset=0)


def now() -> float:
    """Return the current time in whole seconds since 1970. Notes are dated to the second."""
    return float(int(time.time()))


def _require_note(store: Store, said: str, projects: frozenset[str] | None) -> NoteRow:
    row = _find_note(store, said, projects)
    if row is None:
        raise NotFoundError("there is no note of that id", hint="memory_search shows ids")
    return row


def _find_note(store: Store, said: str, projects: frozenset[str] | None) -> NoteRow | None:
    """Return the existing note in these projects with this id, whole or short, or with this file
    path or name.

    Raises ToolError: a short id or a name that matches several notes.
    """
    begins = note_names.SHORT.fullmatch(said)
    if begins is None:
        if (row := store.notes.find(said, projects)) is not None:
            return row
        found = store.notes.notes_with_path(note_names.file_of(said), projects, most=MOST_CANDIDATES + 1)
        if len(found) > 1:
            _refuse(said, [row.id for row in found], what="the file's name")
        return found[0] if found else None
    found = store.notes.notes_with_id_prefix(begins[1], projects, most=MOST_CANDIDATES + 1)
    if len(found) > 1:
        _refuse(said, [row.id for row in found])
    return found[0] if found else None


def _refuse(said: str, candidates: Sequence[str], *, what: str = "the id") -> NoReturn:
    """Raise an error that lists candidates by id only: a title is stored data, and an error cannot
    mark it as such.
    """
    more = ", ..." if len(candidates) > MOST_CANDIDATES else ""
    raise ToolError(
        f"{said} is {what} of several notes", hint=f"one of {', '.join(candidates[:MOST_CANDIDATES])}{more}"
    )


def _full(store: Store, row: NoteRow, projects: frozenset[str] | None) -> FullNote:
    with store.reading():
        document = store.documents.find(row.project, row.path)
        revision = store.documents.revision(row.document, row.revision) if document is not None else None
        if revision is None or revision.text is None:
            raise NotFoundError("there is no note of that id", hint="it may have been deleted just now")
        relations = store.notes.relations([row.id], projects)
        others = {end for one in relations for end in (one.note, one.other) if end != row.id}
        related = store.notes.notes_with_ids(sorted(others), projects)
        linked = store.mentions.link_rows(row.document, limit=MOST_LINKED)
    return FullNote(row, notes.read(row.project, row.path, revision.text), revision.text, relations, related, linked)


def _row_at(store: Store, project: str, path: str) -> NoteRow:
    document = store.documents.find(project, path)
    row = store.notes.of_document(document.id) if document is not None else None
    if row is None:
        raise NotFoundError("the note was deleted", hint="it was stored before, and has been deleted since")
    return row


def _place(store: Store, said: str, projects: frozenset[str] | None) -> tuple[str, str]:
    """Return (project, path) of a note in these projects (None: any), existing or recently deleted.
    Raises NotFoundError; ToolError: a short id that matches several notes.
    """
    with store.reading():
        row = _find_note(store, said, projects)
        if row is not None:
            return row.project, row.path
        gone: dict[str, tuple[str, str]] = {}
        left = MAX_READ
        # The latest deletion first: a renamed file counts as deleted under its old name before.
        for document in store.documents.deleted_notes(projects, limit=MAX_DELETED):
            is_named = note_names.is_named(document.path, said)
            is_named = is_named or note_names.may_mean(said, note_names.id_of_path(document.project, document.path))
            left -= not is_named
            if (is_named or left >= 0) and (identity := _id_in(store, document, said)):
                gone.setdefault(identity, (document.project, document.path))
                if identity == said:
                    break
    if not gone:
        raise NotFoundError("there is no note of that id", hint="memory_search shows ids")
    if len(gone) > 1:
        _refuse(said, list(gone))
    return next(iter(gone.values()))


def _id_in(store: Store, row: DocumentRow, said: str) -> str | None:
    """Return the id of a deleted note if `said` refers to it, else None."""
    last = store.documents.revision(row.id, store.documents.before(row.id, row.revision))
    if last is None or last.text is None:
        return None
    found = notes.read(row.project, row.path, last.text)
    return next((own for own in (found.id, found.path_id) if note_names.may_mean(said, own)), None)


def refuse_circle(store: Store, identity: str, others: Sequence[str], projects: frozenset[str] | None) -> None:
    """Raise ToolError if the note may not supersede `others`, because it would then supersede
    itself, directly or through other notes.

    Only notes in `projects` are considered, those that the client may access (None for all).
    """
    seen, waiting = set(others), list(others)
    while waiting and len(seen) < MAX_CHAIN:
        stated = store.notes.relations(waiting, projects)
        found = {one.other for one in stated if one.kind == SUPERSEDES and one.note in seen} - seen
        if identity in found or identity in seen:
            raise ToolError(
                "these notes would supersede each other in a circle",
                hint=f"take the older statement back first: memory_update with relation {SUPERSEDES} and without that note in relatedTo",
            )
        waiting = sorted(found)
        seen |= found
