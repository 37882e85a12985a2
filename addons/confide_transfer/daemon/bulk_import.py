"""Imports many notes in one transaction. A note that is sent again is stored only once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from confide_daemon.documents import document_history
from confide_daemon.documents.document_results import PutResult
from confide_daemon.documents.writer import Writer
from confide_daemon.errors import ForgottenError, InvalidPathError, InvalidTextError, TooLargeError
from confide_daemon.notes.note_edit import Draft, merge_draft
from confide_daemon.notes.twins import find_twin
from confide_daemon.store.space_store import Store
from confide_memory import note_names
from confide_memory.classes import UNTRUSTED
from confide_memory.documents import check_path, check_text
from confide_memory.note import digest_of, scope_of

State = Literal["new", "known", "identical", "deleted", "refused"]


@dataclass(frozen=True, slots=True)
class Taken:
    """The result of importing one note.

    Attributes:
        state: `new`; `known`: a note with this id exists, whatever its text is now; `identical`:
            another note in the same project or task has the same text, and gets the metadata of
            this one; `deleted`: a note with this id existed and was deleted; `refused`.
        id: the id of the note that the space has now.
        why: the reason for `refused`, for users.
        project: the project of a `known` note if it differs from the target project; else None.
        path: the path of the document that is written.
        text: the text to be written.
        result: the result of writing; None if nothing was written.
    """

    state: State
    id: str | None = None
    why: str | None = None
    path: str = ""
    text: str = field(default="", repr=False)
    result: PutResult | None = None
    project: str | None = None


@dataclass(frozen=True, slots=True)
class Intake:
    project: str
    author: str
    # Projects that the caller may read; None for all. Notes in other projects are not reported.
    projects: frozenset[str] | None
    again: bool = False  # restore notes that were deleted

    def take(self, writer: Writer, drafts: Sequence[Draft]) -> list[Taken]:
        """Write the notes in one transaction, on the writer thread.

        Raise StorageError if nothing was written.
        """
        with writer.store.writing():
            gone = self._deleted_marks(writer.store)
            return [self._take(writer, draft, gone) for draft in drafts]

    def try_out(self, store: Store, drafts: Sequence[Draft]) -> list[Taken]:
        """Return the results that `take` would give, without writing anything."""
        seen: dict[tuple[str | None, bytes], list[tuple[str, str | None]]] = {}
        ids: set[str] = set()
        found = []
        with store.reading():
            gone = self._deleted_marks(store)
            for draft in drafts:
                taken = self._look_up(store, draft, gone)
                said = (draft.task_id, digest_of(draft.body))
                if taken.state == "new" and taken.id in ids:
                    taken = Taken("known", taken.id)
                elif taken.state == "new" and any(draft.is_said_by(*names) for names in seen.get(said, ())):
                    taken = Taken("identical")
                elif taken.state == "new":
                    seen.setdefault(said, []).append((draft.heading, draft.entity))
                    ids.add(taken.id or "")
                found.append(taken)
        return found

    def _take(self, writer: Writer, draft: Draft, gone: frozenset[str]) -> Taken:
        taken = self._look_up(writer.store, draft, gone)
        if taken.state == "identical" and taken.path:
            return replace(
                taken, result=writer.edit_within(self.project, taken.path, merge_draft(draft), author=self.author)
            )
        if taken.state != "new":
            return taken
        result = writer.create_within(self.project, taken.path, taken.text, author=self.author)
        return replace(taken, state="known") if result is None else replace(taken, result=result)

    def _deleted_marks(self, store: Store) -> frozenset[str]:
        """Return the marks in the file names of deleted notes, which do not depend on their titles."""
        return (
            frozenset()
            if self.again
            else frozenset(map(note_names.mark_of, store.documents.deleted_files(self.project)))
        )

    def _look_up(self, store: Store, draft: Draft, gone: frozenset[str]) -> Taken:
        identity, path = draft.id_and_path(b"")
        if (known := store.notes.find(identity, self.projects)) is not None:
            return Taken("known", identity, project=known.project if known.project != self.project else None)
        document = store.documents.find(self.project, path)
        if document is not None and not document.deleted:
            return Taken("known", identity)  # an edit of the file removed its id
        if note_names.mark_of(path) in gone:
            return Taken("deleted", identity)
        twin = find_twin(store, self.project, draft, by=UNTRUSTED)
        if twin is not None:
            return Taken("identical", twin.row.id, path=twin.row.path if twin.change else "")
        try:
            text = check_text(draft.text(identity, scope_of(self.project, draft.task_id)))
            document_history.check_not_forgotten(store, self.project, path, text)
            return Taken("new", identity, path=check_path(path), text=text)
        except (InvalidPathError, InvalidTextError, TooLargeError, ForgottenError) as error:
            return Taken("refused", identity, str(error))
