"""The part of the SQLite store that has to do with notes: what each says of itself, lists, entities, and how often they are used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from confide_daemon.notes.note import Note
from confide_daemon.store import entities, note_listing, note_pieces, notes
from confide_daemon.store.remembered import Remembered
from confide_daemon.store.rows import (
    DocumentRow,
    EntityRow,
    NoteCounts,
    NoteFilter,
    NoteList,
    NotePiece,
    NotePlace,
    NoteRow,
    RelationRow,
    Supersession,
)


class SqliteNotes:
    """Part of `sqlite.SqliteStore`, which has the connection; see `Store`."""

    _remembered: Remembered

    if TYPE_CHECKING:

        def _rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]: ...

    def replace_note(self, document: DocumentRow, note: Note | None, *, now: float) -> None:
        """What is known of the document as a note from now on."""
        notes.replace(self._rows, document, note, now=now)

    def note(self, identity: str, projects: frozenset[str] | None) -> NoteRow | None:
        """The note of that id."""
        return notes.by_id(self._rows, identity, projects)

    def note_of(self, document: int) -> NoteRow | None:
        """What is known of a document as a note."""
        return notes.by_document(self._rows, document)

    def note_twin(self, project: str, task_id: str | None, digest: bytes) -> NoteRow | None:
        """A note that says exactly the same."""
        return notes.twin(self._rows, project, task_id, digest)

    def notes_of(self, documents: Sequence[int]) -> dict[int, NoteRow]:
        """The notes among these documents."""
        return notes.by_documents(self._rows, documents)

    def notes_named(self, identities: Sequence[str], projects: frozenset[str] | None) -> dict[str, NoteRow]:
        """Those of these notes that there are."""
        return notes.by_ids(self._rows, identities, projects)

    def supersessions(self, documents: Sequence[int], projects: frozenset[str] | None) -> list[Supersession]:
        """Which notes say that they supersede one of these."""
        return notes.supersessions(self._rows, documents, projects)

    def succession(self, documents: Sequence[int], projects: frozenset[str] | None) -> list[Supersession]:
        """What supersedes these, and what supersedes that."""
        return notes.succession(self._rows, documents, projects)

    def count_uses(self, uses: Mapping[int, int], *, now: float) -> None:
        """Adds to how often documents were read or shown."""
        notes.count_uses(self._rows, uses, now=now)

    def entities(self, projects: frozenset[str] | None, *, tasks: bool | None, type: str | None) -> list[EntityRow]:
        """What the notes are about."""
        if type is not None:  # whatever a caller says, so that it would be kept in as many forms
            return entities.listed(self._rows, projects, tasks=tasks, type=type)
        key = ("entities", projects, tasks)
        return self._remembered.get(key, lambda: entities.listed(self._rows, projects, tasks=tasks, type=None))

    def entity_keys(self, projects: frozenset[str] | None, *, tasks: bool) -> list[str]:
        """The names of all entities."""
        key = ("entity keys", projects, tasks)
        return self._remembered.get(key, lambda: entities.keys(self._rows, projects, tasks=tasks))

    def entities_among(self, keys: Sequence[str], projects: frozenset[str] | None, *, tasks: bool) -> list[EntityRow]:
        """Those of some names."""
        return entities.listed(self._rows, projects, tasks=tasks, type=None, among=keys)

    def note_counts(self, projects: frozenset[str] | None) -> NoteCounts:
        """How many notes there are."""
        return entities.counts(self._rows, projects)

    def note_pieces(self, documents: Sequence[int], *, first: int) -> list[NotePiece]:
        """The first pieces of notes."""
        return note_pieces.first_pieces(self._rows, documents, first=first)

    def note_places(self, projects: frozenset[str] | None) -> list[NotePlace]:
        """Where notes lie."""
        return note_pieces.places(self._rows, projects)

    def note_count(self, projects: frozenset[str] | None, *, most: int) -> int:
        """How many notes there are."""
        return note_pieces.count(self._rows, projects, most=most)

    def superseded(self, documents: Sequence[int], projects: frozenset[str] | None) -> set[int]:
        """Those that another note supersedes."""
        return note_pieces.superseded(self._rows, documents, projects)

    def tags_among(self, words: Sequence[str], projects: frozenset[str] | None) -> list[str]:
        """Those that are tags in use."""
        return note_pieces.tags_among(self._rows, words, projects)

    def note_list(self, wanted: NoteFilter, *, sort: str, limit: int, offset: int) -> NoteList:
        """A page of the notes that pass."""
        return note_listing.page(
            self._rows,
            wanted,
            sort=sort,
            limit=limit,
            offset=offset,
            count=lambda count: self._remembered.get(("notes", wanted), count),
        )

    def note_relations(self, identities: Sequence[str], projects: frozenset[str] | None) -> list[RelationRow]:
        """What these notes state and what is stated of them."""
        return notes.relations_of(self._rows, identities, projects)
