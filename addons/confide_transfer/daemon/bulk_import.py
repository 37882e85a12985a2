"""Notes that come from elsewhere, many at a time: each is stored once, however often it comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from confide_daemon.documents.document_results import PutResult
from confide_daemon.documents.writer import Writer
from confide_daemon.errors import InvalidPathError, InvalidTextError, TooLargeError
from confide_daemon.notes.note_edit import Draft, united
from confide_daemon.notes.twins import find_twin
from confide_daemon.store.space_store import Store
from confide_memory import note_names
from confide_memory.classes import UNTRUSTED
from confide_memory.documents import check_path, check_text
from confide_memory.note import digest_of, scope_of

State = Literal["new", "known", "identical", "deleted", "refused"]


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of one note.

    Attributes:
        state: new; known: its id is here, whatever the note says by now; identical: another note of the place says exactly this, and
            has what came beside the text;
            deleted: it was here, and somebody deleted it; refused.
        id: of the note that is there.
        why: it was refused, for people.
        project: where a known one is, if it is not the one that it comes for.
        path, text, result: of the document that is written; the text as it was to be.
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
    projects: (
        frozenset[str] | None
    )  # which the caller reaches; None: all. What lies elsewhere is nothing that it is told of.
    again: bool = False  # bring back what was deleted

    def take(self, writer: Writer, drafts: Sequence[Draft]) -> list[Taken]:
        """Writes them, in one transaction, in the thread that writes. Raises StorageError: nothing was written."""
        with writer.store.writing():
            gone = self._gone(writer.store)
            return [self._taken(writer, draft, gone) for draft in drafts]

    def try_out(self, store: Store, drafts: Sequence[Draft]) -> list[Taken]:
        """What `take` would come to; writes nothing."""
        seen: dict[tuple[str | None, bytes], list[tuple[str, str | None]]] = {}
        ids: set[str] = set()
        found = []
        with store.reading():
            gone = self._gone(store)
            for draft in drafts:
                taken = self._looked_up(store, draft, gone)
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

    def _taken(self, writer: Writer, draft: Draft, gone: frozenset[str]) -> Taken:
        taken = self._looked_up(writer.store, draft, gone)
        if taken.state == "identical" and taken.path:
            return replace(
                taken, result=writer.edit_within(self.project, taken.path, united(draft), author=self.author)
            )
        if taken.state != "new":
            return taken
        result = writer.create_within(self.project, taken.path, taken.text, author=self.author)
        return replace(taken, state="known") if result is None else replace(taken, result=result)

    def _gone(self, store: Store) -> frozenset[str]:
        """What names the files of deleted notes, whatever their titles were."""
        return (
            frozenset()
            if self.again
            else frozenset(map(note_names.mark_of, store.documents.deleted_files(self.project)))
        )

    def _looked_up(self, store: Store, draft: Draft, gone: frozenset[str]) -> Taken:
        identity, path = draft.named(b"")
        if (known := store.notes.find(identity, self.projects)) is not None:
            return Taken("known", identity, project=known.project if known.project != self.project else None)
        document = store.documents.find(self.project, path)
        if document is not None and not document.deleted:
            return Taken("known", identity)  # whoever edited the file took its id away
        if note_names.mark_of(path) in gone:
            return Taken("deleted", identity)
        twin = find_twin(store, self.project, draft, by=UNTRUSTED)
        if twin is not None:
            return Taken("identical", twin.row.id, path=twin.row.path if twin.change else "")
        try:
            text = check_text(draft.text(identity, scope_of(self.project, draft.task_id)))
            return Taken("new", identity, path=check_path(path), text=text)
        except (InvalidPathError, InvalidTextError, TooLargeError) as error:
            return Taken("refused", identity, str(error))
