"""Write operations on documents. Each one reads, decides and writes in one transaction on the
writer's thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from confide_daemon.documents import document_history, provenance
from confide_daemon.documents.document_results import DeleteResult, PutResult, RemoveResult, SyncComparison
from confide_daemon.documents.merge import Merge, merge_texts
from confide_daemon.errors import ConflictError, DamagedError, NotFoundError, OperationError
from confide_daemon.store.rows import DocumentRow, OperationRow, PieceChanges, TextOrigin
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.class_table import Lines
from confide_daemon.store.tables.receipt_table import NUMBERS
from confide_memory import documents, markdown_blocks
from confide_memory.classes import UNTRUSTED
from confide_memory.documents import MAX_SENT, MAX_TEXT_BYTES, REMOVED, bucket_of, text_hash
from confide_memory.globs import matches
from confide_memory.markdown_blocks import in_style_of

LOST_HINT = (
    "a device that has the file sends it again when it next compares (confide sync); confide history lists older texts"
)
Derive = Callable[[Store, DocumentRow, str | None, float], PieceChanges]
"""Updates the derived rows of a document for its text (None: it is deleted) at a time; the index
provides it.
"""
Judge = Callable[[Store, DocumentRow, str | None, float], Callable[[], PieceChanges]]
"""Does the same in two steps: it stores the class of a document with this text (None: it is
deleted), and returns a function that updates all derived rows.
"""
Gone = tuple[str, int, str | None]
"""A file that a device no longer has: its path, the revision it confirmed, and the hash of that
text if it sends one.
"""
Made = TypeVar("Made", PutResult, PutResult | None)
# Revisions that are searched for the previous different text of a document.
MOST_LOOKED_BACK = 1000
# Entries (document and device) of superseded versions that are kept.
MOST_OVERTAKEN = 4096


@dataclass(frozen=True, slots=True)
class RepeatableChange:
    """The id of a change that a device may send more than once. The change is made only once."""

    id: str  # 32 hex digits
    request_hash: str  # a hash of the request; the same id with another hash is refused


@dataclass(frozen=True, slots=True)
class Overtaken:
    """Versions of a document that a device sent before a later version that arrived first. If one
    of them arrives after that, it is late.

    A version is identified by its hash; `REMOVED` stands for the deletion of the file. The record
    is kept in memory only, so it is lost when the process ends.
    """

    hashes: frozenset[str]
    by: str  # the version that arrived first
    sent_with: frozenset[str]  # the `sent` of that version; later versions from before its answer name these too
    base: int  # its base revision; a version made after its answer has a newer base

    def has_overtaken(self, version: str, base: int, sent: Collection[str]) -> bool:
        """Return True if a version is older than the one that has already arrived. `base` is the
        revision that it was made from, and `sent` are the versions that it names as sent later.
        """
        if version not in self.hashes or base > self.base:
            return False
        # A deletion that was answered without a revision is named alone.
        names_all = self.by == REMOVED or len(sent) == MAX_SENT or self.sent_with <= set(sent)
        return not (self.by in sent and names_all)


@dataclass
class Writer:
    """The write operations of a space. Call them on the writer's thread only; `store` is the
    database connection that writes.
    """

    store: Store
    _judge: Judge
    _overtaken: dict[tuple[str, str, str], Overtaken] = field(default_factory=dict)  # by project, path, device

    def put(
        self,
        project: str,
        path: str,
        text: str,
        *,
        base: int,
        author: str,
        base_hash: str | None = None,
        sent: Collection[str] = (),
        by: str = UNTRUSTED,
        others: Sequence[Lines] = (),
    ) -> PutResult:
        """Store a device's version of a document. It was made from revision `base` (0 if from
        none), and is merged if there is a newer revision.

        Args:
            base_hash: the hash of the text that the device knows as `base`; None if it sends none.
            sent: the hashes of later versions that the device has sent without an answer. The
                newest of them that arrived is the real base of this version. With `base`, the text
                would be merged with changes that it already contains.
            by: the trust class of the writer.
            others: the ranges of lines that have another author (`provenance.lines_of_others`).

        A text without a base that equals an earlier revision, as in an old clone, changes nothing.

        Raises InvalidPathError, InvalidTextError or TooLargeError if the path or text is not valid;
        NotFoundError if the device has deleted the file since, or if the text has no base and is an
        earlier revision of a deleted document. The text is in the history then.
        """
        documents.check_path(path)
        text = self._remove_forgotten(documents.check_text(text))
        key, digest = (project, path, author), text_hash(text)
        lines = provenance.lines_of_others(text, others)
        with self.store.writing():
            row = self.store.documents.find(project, path)
            known, is_earlier = self._base(row, digest, base, base_hash, sent)
            is_late = self._is_late(key, digest, known, sent)
            result: PutResult | None = None
            if not is_late or (row is not None and not row.deleted):
                result = self._put(
                    row,
                    project,
                    path,
                    text,
                    base=known,
                    sent=sent,
                    author=author,
                    by=by,
                    others=lines,
                    is_late=is_late,
                    is_earlier=is_earlier,
                )
                if not is_late:
                    self._note_overtaken(key, digest, known, sent)
            else:
                self._save_deleted(row, project, path, text, author=author, by=by, others=lines)
        if result is None:
            raise NotFoundError("the file was deleted on this machine after this was sent")
        return replace(result, queued_pieces=self._count_queued())

    def _remove_forgotten(self, text: str) -> str:
        """Return a device's text without what was forgotten with the files; the device then changes
        its file too.
        """
        for guard in self.store.forgettings.guards():
            if guard.may_cut(text):
                text = guard.cut(text)
        return text

    def _base(
        self, row: DocumentRow | None, digest: str, base: int, base_hash: str | None, sent: Collection[str]
    ) -> tuple[int, bool]:
        """Return the revision that a device's text comes from, or 0, and True if the text equals it
        and so contains no change. Raises NotFoundError: the document is deleted, and the device
        sends one of its texts without a base.
        """
        if row is None:
            return 0, False
        known = ancestor_of(self.store, row, base, base_hash)
        # A device names the text itself if it has sent it before.
        if known or not set(sent) <= {digest}:
            return known, False
        known = self._earlier(row, digest, base, base_hash)
        return known, bool(known) and self.store.documents.hash_at(row.id, known) == digest

    def _save_deleted(
        self,
        row: DocumentRow | None,
        project: str,
        path: str,
        text: str,
        *,
        author: str,
        by: str,
        others: frozenset[str],
    ) -> None:
        """Keep a late version in the history of a document that stays deleted."""
        saved = self._save(row, project, path, text, author=author, by=by, others=others)
        self._save(saved, project, path, None, author=author, by=by)
        # A second time it is accepted: another folder of the device, which knows nothing of the
        # deletion, may have such a file.
        overtaken = self._overtaken[project, path, author]
        self._overtaken[project, path, author] = replace(overtaken, hashes=overtaken.hashes - {text_hash(text)})

    def _earlier(self, row: DocumentRow, digest: str, base: int, base_hash: str | None) -> int:
        """Return the revision that a device's text comes from if its base is missing or unknown
        here, or 0.

        Raises NotFoundError: the document is deleted, and the device sends one of its texts without
        a base.
        """
        found = self.store.documents.number_of(row.id, digest)
        if row.deleted:
            if found and not base:
                raise NotFoundError("this text was deleted elsewhere", hint="confide restore brings it back")
            return 0
        return found or before_the_loss(self.store, row, base, base_hash)

    def _put(
        self,
        row: DocumentRow | None,
        project: str,
        path: str,
        text: str,
        *,
        base: int,
        sent: Collection[str],
        author: str,
        by: str,
        others: frozenset[str],
        is_late: bool,
        is_earlier: bool,
    ) -> PutResult:
        # An empty hash: the newest text is lost, and any text is better.
        if row is None or row.deleted or not row.hash:
            return self._keep(row, project, path, text, author=author, by=by, others=others)
        if row.hash == text_hash(text):
            if base == row.revision and not set(sent) <= {row.hash}:
                # Versions that the device undoes with this may still arrive, made from the same
                # revision, so this gets a revision of its own.
                return self._keep(row, project, path, text, author=author, by=by, others=others)
            return self._result(row, text, changed=False)
        again = self.store.documents.newest_of(row.id, [text_hash(text)], after=base, author=author)
        if is_late:
            if again:
                return self._result(row, self._text(row), changed=False, merged=True)
            self._save(row, project, path, text, author=author, by=by, others=others)
            return self._keep(row, project, path, self._text(row), author=author, by=by, merged=True)
        base = max(again, self.store.documents.newest_of(row.id, sent, after=base), base)
        if base == row.revision:
            return self._keep(row, project, path, text, author=author, by=by, others=others)
        if is_earlier:
            return self._result(row, self._text(row), changed=False, merged=True)
        merge = self._merge(row, text, base=base, author=author)
        if not merge.clash and text_hash(merge.text) == row.hash and again == base:
            return self._result(row, merge.text, changed=False, merged=True)
        if merge.text != text:
            # The incoming text stays in the history as it was sent, whatever the merge produced:
            # the device may make its next version from it before the answer arrives.
            self._save(row, project, path, text, author=author, by=by, others=others)
        return self._keep(
            row, project, path, merge.text, author=author, by=by, others=others, merged=True, clash=merge.clash
        )

    def _is_late(self, key: tuple[str, str, str], digest: str, base: int, sent: Collection[str]) -> bool:
        """Return True if the device's next version arrived before this one, as over a new
        connection: taken as newer, this one would undo it.
        """
        known = self._overtaken.get(key)
        return known is not None and known.has_overtaken(digest, base, sent)

    def _note_overtaken(self, key: tuple[str, str, str], digest: str, base: int, sent: Collection[str]) -> None:
        earlier = self._overtaken.get(key)
        if not sent and (earlier is None or digest != REMOVED):
            return
        hashes = frozenset(sent)
        if earlier is not None and len(hashes | earlier.hashes) < 4 * MAX_SENT:
            hashes |= earlier.hashes | {earlier.by}
        self._overtaken.pop(key, None)
        self._overtaken[key] = Overtaken(hashes - {digest}, digest, frozenset(sent), base)
        if len(self._overtaken) > MOST_OVERTAKEN:
            del self._overtaken[next(iter(self._overtaken))]

    def _merge(self, row: DocumentRow, text: str, *, base: int, author: str) -> Merge:
        ancestor = self.store.documents.revision(row.id, base)
        ours = self._text(row)
        merge = merge_texts(
            None if ancestor is None else ancestor.text,
            ours,
            text,
            names=(
                f"{row.author}, revision {row.revision}",
                f"{author}, revision {self.store.documents.number_behind(row.revision)}",
            ),
            is_log=documents.is_log(row.path),
        )
        # The merged text may exceed the limit of a document, and no device would accept it: then
        # the incoming text is in the history only.
        return merge if len(merge.text.encode()) <= MAX_TEXT_BYTES else Merge(ours, clash=True)

    def append(
        self,
        project: str,
        path: str,
        text: str,
        *,
        heading: str | None,
        author: str,
        base: int | None = None,
        operation: RepeatableChange | None = None,
        by: str = UNTRUSTED,
    ) -> PutResult:
        """Append text to a document or to the section under `heading`. Create either if it is
        missing.

        `base`: the revision at which the document must be; 0 if it must not exist, None for any.

        Raises InvalidPathError, InvalidTextError or TooLargeError if the path or text is not valid;
        OperationError if the operation's id was used for another change; ConflictError if the
        document is not at revision `base`.
        """
        documents.check_path(path)
        documents.check_text(text)

        def change(before: str | None) -> str:
            return in_style_of(before, lambda plain: markdown_blocks.append_text(plain or "", text, heading=heading))

        return self._edit(project, path, text, author, operation, change, by=by, base=base)

    def replace(
        self,
        project: str,
        path: str,
        text: str,
        *,
        heading: str | None,
        author: str,
        base: int | None = None,
        operation: RepeatableChange | None = None,
        by: str = UNTRUSTED,
    ) -> PutResult:
        """Replace a document or the section under `heading`.

        `base`: the revision at which the document must be; None for any.

        Raises InvalidPathError, InvalidTextError or TooLargeError if the path or text is not valid;
        OperationError if the operation's id was used for another change; ConflictError if the
        document is not at revision `base`; NotFoundError if the section does not exist.
        """
        documents.check_path(path)
        documents.check_text(text)

        def change(before: str | None) -> str:
            if heading is None:
                return text if text.endswith("\n") or not text else text + "\n"
            if before is None:
                raise NotFoundError(
                    "no such document, so no section to replace", hint="store it without a heading first"
                )
            return markdown_blocks.replace_section(before, text, heading=heading)

        def apply_style(before: str | None) -> str:
            return in_style_of(before, change)

        return self._edit(project, path, text, author, operation, apply_style, by=by, base=base)

    def create(
        self,
        project: str,
        path: str,
        text: str,
        *,
        author: str,
        operation: RepeatableChange | None = None,
        by: str = UNTRUSTED,
    ) -> PutResult | None:
        """Create a document and return the result. If it exists, leave it unchanged and return
        None. A deleted document is created again.
        """
        return self._once(project, path, operation, lambda row: self._create(row, project, path, text, author, by))

    def create_within(
        self, project: str, path: str, text: str, *, author: str, by: str = UNTRUSTED
    ) -> PutResult | None:
        """Create a document as `create` does, within the caller's transaction, and update its
        derived rows there. Return None if it exists.
        """
        made = self._create(self.store.documents.find(project, path), project, path, text, author, by)
        self.store.derive()
        return made

    def edit_within(self, project: str, path: str, change: Callable[[str], str], *, author: str) -> PutResult | None:
        """Change a document as `edit` does, within the caller's transaction. Return None if it does
        not exist or nothing changes.
        """
        row = self.store.documents.find(project, path)
        if row is None or row.deleted:
            return None
        before = self._text(row)
        after = documents.check_text(change(before))
        if after == before:
            return None
        made = self._keep(row, project, path, after, author=author, by=UNTRUSTED, lines=0)
        self.store.derive()
        return made

    def _create(
        self, row: DocumentRow | None, project: str, path: str, text: str, author: str, by: str
    ) -> PutResult | None:
        if row is not None and not row.deleted:
            return None
        documents.check_text(text)
        return self._keep(row, project, path, text, author=author, by=by, lines=text.count("\n"))

    def edit(
        self,
        project: str,
        path: str,
        change: Callable[[str], str],
        *,
        author: str,
        base: int | None = None,
        operation: RepeatableChange | None = None,
        by: str = UNTRUSTED,
    ) -> PutResult:
        """Change an existing document. `change` gets its text, and returns the complete new text
        with the document's line ends.

        Raises NotFoundError if the document does not exist; ConflictError if it is not at revision
        `base` (None for any).
        """

        def check_and_change(before: str | None) -> str:
            row = self.store.documents.find(project, path)
            if before is None or row is None:
                raise NotFoundError("no such document", hint="it may have been deleted meanwhile")
            if base is not None and row.revision != base:
                raise ConflictError(base, row.revision)
            return change(before)

        return self._edit(project, path, "", author, operation, check_and_change, by=by)

    def delete(
        self,
        project: str,
        path: str,
        *,
        author: str,
        base: int | None = None,
        operation: RepeatableChange | None = None,
    ) -> DeleteResult:
        """Delete a document, which can be restored for a limited time.

        Raises NotFoundError if it does not exist; ConflictError if it is not at revision `base`
        (None for any); OperationError if the operation's id was used for another change.
        """
        with self.store.writing():
            row = self.store.documents.find(project, path)
            known = self._find_operation(operation)
            if known and row is not None:
                return DeleteResult(known.revision, row.updated_at, known.previous, row.deleted, repeated=True)
            if row is None or row.deleted:
                raise NotFoundError("no such document", hint="it may have been deleted already")
            if base is not None and row.revision != base:
                raise ConflictError(base, row.revision)
            buried = self._tombstone(row, author)
            if operation:
                self._note(operation, buried.revision, "", row.hash, 0)
            return DeleteResult(buried.revision, buried.updated_at, row.hash, is_deleted=True)

    def remove(
        self,
        project: str,
        path: str,
        *,
        base: int,
        author: str,
        base_hash: str | None = None,
        sent: Collection[str] = (),
    ) -> RemoveResult:
        """Delete a document because a device has deleted its file. The history is kept.

        The document is deleted only if the device knew its newest text: `base` (with `base_hash`,
        as in `put`) is the newest revision, or the newest is a version that the device has `sent`
        since, without changes by others. It is also kept if the device has sent the file again
        since. Raises NotFoundError if the document never existed.
        """
        documents.check_stored_path(path)
        key = (project, path, author)
        with self.store.writing():
            row = self.store.documents.find(project, path)
            if row is None:
                self._note_overtaken(key, REMOVED, 0, sent)  # versions sent before may still arrive
                raise NotFoundError("no such document to remove")
            known = ancestor_of(self.store, row, base, base_hash)
            is_late = self._is_late(key, REMOVED, known, sent)
            if not is_late:
                self._note_overtaken(key, REMOVED, known, sent)
            if row.deleted:
                # Versions sent in between may still arrive; later ones have a newer base.
                is_again = bool(sent) and known == row.revision and not is_late
                return RemoveResult((self._tombstone(row, author) if is_again else row).revision, removed=True)
            newest = max(known, self.store.documents.newest_of(row.id, sent, after=known, author=author))
            if is_late or row.revision != newest:
                return RemoveResult(row.revision, removed=False, text=self._text(row))
            return RemoveResult(self._tombstone(row, author).revision, removed=True)

    def restore(
        self,
        project: str,
        path: str,
        *,
        revision: int | None,
        author: str,
        base: int | None = None,
        operation: RepeatableChange | None = None,
        by: str = UNTRUSTED,
    ) -> PutResult:
        """Make the text of an older revision the newest one. Without `revision` (None), take the
        newest text that differs from the current one.

        Raises NotFoundError if that text does not exist; ConflictError if the document is not at
        revision `base` (None for any); OperationError if the operation's id was used for another
        change.
        """

        def restore_row(row: DocumentRow | None) -> PutResult:
            if row is not None and base not in (None, row.revision):
                raise ConflictError(base, row.revision)
            return self._restore(row, revision, project, path, author, by)

        return self._once(project, path, operation, restore_row)

    def _restore(
        self, row: DocumentRow | None, revision: int | None, project: str, path: str, author: str, by: str
    ) -> PutResult:
        entries = self.store.documents.revisions(row.id, limit=MOST_LOOKED_BACK) if row is not None else []
        if row is None or not entries:
            raise NotFoundError(
                "nothing is known of such a document", hint="confide restore --list lists what can come back"
            )
        if revision is None:
            revision = next((one.number for one in entries if not one.deleted and one.hash != row.hash), None)
            if revision is None:
                raise NotFoundError("the document has no other text to restore", hint="confide history lists them")
        found = self.store.documents.revision(row.id, revision)
        if found is None:
            raise NotFoundError(f"the document has no revision {revision}", hint=f"its newest is {row.revision}")
        if found.text is None:
            raise NotFoundError(f"revision {revision} deleted the document", hint="name the one before")
        if found.hash == row.hash:
            return self._result(row, found.text, changed=False)
        return self._keep(row, project, path, found.text, author=author, by=by)

    def bury(self, project: str, gone: Iterable[Gone], *, author: str) -> None:
        """Delete the documents whose files a device has deleted, each only if the device had its
        newest revision.
        """
        with self.store.writing():
            for path, base, base_hash in gone:
                row = self.store.documents.find(project, path)
                if row is None or row.deleted or row.source == "sessions":
                    continue
                if row.revision == ancestor_of(self.store, row, base, base_hash):
                    self._tombstone(row, author)

    def forget(
        self, project: str, asked: Sequence[str], *, author: str, reaches: Callable[[str], bool]
    ) -> document_history.ForgetStep:
        """Accept no documents with these names from now on, and remove those that match with all
        their revisions. Each call removes a limited number.

        Raises BadNameError if the project has too many forgotten names.
        """
        with self.store.writing():
            document_history.note_forgotten(self.store, project, asked)
            found = document_history.documents_named(self.store, project, asked, reaches=reaches)
            step = found[: document_history.FORGOTTEN_AT_ONCE]
            self.store.vectors.forget([row.id for row in step])
            for row in step:
                if not row.deleted:
                    self._tombstone(row, author)
            self.store.derive()
            for row in step:
                self.store.documents.drop_texts(row.id)
        return document_history.ForgetStep(tuple(row.path for row in step), len(found), len(step) == len(found))

    def drop(self, row: DocumentRow, author: str) -> DocumentRow:
        """Remove a document with all its revisions for good, within the caller's transaction."""
        self.store.vectors.forget([row.id])
        buried = row if row.deleted else self._tombstone(row, author)
        self.store.derive()
        self.store.documents.drop_texts(row.id)
        return buried

    def keep_cut(self, row: DocumentRow, text: str, author: str) -> PutResult:
        """Store the rest of a document's text, of which a part was forgotten, as its newest
        revision. Call within a transaction.
        """
        return self._keep(row, row.project, row.path, text, author=author, by=row.made)

    def recut(self, document: int) -> PieceChanges:
        """Divide a document into chunks again, if it exists. Chunks with unchanged text keep their
        ids and vectors.
        """
        with self.store.writing_derived():
            row = next((one for one in self.store.documents.by_id([document]) if not one.deleted), None)
            revision = self.store.documents.revision(row.id, row.revision) if row is not None else None
            if row is None or revision is None or revision.text is None:
                return PieceChanges(0, 0, 0)  # deleted meanwhile, or its text is lost, which the maintenance reports
            return self._judge(self.store, row, revision.text, time.time())()

    def _tombstone(self, row: DocumentRow, author: str) -> DocumentRow:
        buried = self._save(row, row.project, row.path, None, author=author, by=row.made)
        self.store.behind(self._judge(self.store, buried, None, time.time()))
        return buried

    def _edit(
        self,
        project: str,
        path: str,
        written: str,
        author: str,
        operation: RepeatableChange | None,
        change: Callable[[str | None], str],
        *,
        by: str,
        base: int | None = None,
    ) -> PutResult:
        def edit_row(row: DocumentRow | None) -> PutResult:
            found = 0 if row is None or row.deleted else row.revision
            if base not in (None, found):
                raise ConflictError(base or 0, found)
            before = None if row is None or row.deleted else self._text(row)
            after = documents.check_text(change(before))
            if row is not None and after == before:
                return self._result(row, after, changed=False, previous=row.hash)
            lines = len(markdown_blocks.split_keeping_ends(written.strip("\n")))
            return self._keep(row, project, path, after, author=author, by=by, lines=lines)

        return self._once(project, path, operation, edit_row)

    def _once(
        self, project: str, path: str, operation: RepeatableChange | None, make: Callable[[DocumentRow | None], Made]
    ) -> Made:
        """Make a change, unless it was made before under the operation's id."""
        with self.store.writing():
            row = self.store.documents.find(project, path)
            known = self._find_operation(operation)
            result = make(row) if known is None else self._repeat_result(row, known)
            if known is None and operation and result:
                self._note(operation, result.revision, result.hash, result.previous_hash, result.lines_written)
        return result if result is None else replace(result, queued_pieces=self._count_queued())

    def _find_operation(self, operation: RepeatableChange | None) -> OperationRow | None:
        known = self.store.operations.find(operation.id) if operation else None
        # An empty one: the hash of the request was removed (`RevisionTexts.forget_traces`).
        if operation and known and known.asked not in ("", operation.request_hash):
            raise OperationError
        return known

    def _note(self, operation: RepeatableChange, revision: int, content: str, previous: str | None, lines: int) -> None:
        done = OperationRow(operation.id, operation.request_hash, revision, content, previous, lines)
        self.store.operations.add(done, now=time.time())

    def _repeat_result(self, row: DocumentRow | None, known: OperationRow) -> PutResult:
        """Return the result of a change that was made before, with the current text: an older one
        must not reach a disk again.
        """
        if row is None or row.deleted:
            return PutResult(known.revision, "", "", False, False, False, lines_written=known.lines, repeated=True)
        previous = known.previous if row.revision == known.revision else known.hash
        result = self._result(row, self._text(row), changed=False, previous=previous, lines=known.lines)
        return replace(result, repeated=True)

    def _keep(
        self,
        row: DocumentRow | None,
        project: str,
        path: str,
        text: str,
        *,
        author: str,
        by: str,
        others: frozenset[str] = frozenset(),
        merged: bool = False,
        clash: bool = False,
        lines: int = 0,
    ) -> PutResult:
        previous = None if row is None or row.deleted else row.hash
        saved = self._save(row, project, path, text, author=author, by=by, others=others)
        self.store.behind(self._judge(self.store, saved, text, time.time()))
        return self._result(saved, text, changed=True, merged=merged, clash=clash, previous=previous, lines=lines)

    def _save(
        self,
        row: DocumentRow | None,
        project: str,
        path: str,
        text: str | None,
        *,
        author: str,
        by: str,
        others: frozenset[str] = frozenset(),
    ) -> DocumentRow:
        """Store a new revision of the document, which is `row` now; a `text` of None deletes it.
        `by`: the class of the author; `others`: lines by another author.
        """
        now = time.time()
        if text is None:
            origin = TextOrigin(row.made if row is not None else UNTRUSTED, (), by)
            return self.store.documents.save(project, path, None, author=author, now=now, origin=origin)
        document_history.check_not_forgotten(self.store, project, path, text)
        found = provenance.provenance_of(self.store, row, path, text, by, others=others)
        saved = self.store.documents.save(project, path, text, author=author, now=now, origin=found.origin)
        provenance.keep(self.store, saved, text, found)
        return saved

    def trust(self, project: str, path: str, content: str, *, author: str) -> str:
        """Trust a document's current text, whose hash is `content`, on behalf of a user. Return the
        document's new trust class.

        Raises NotFoundError if the document does not exist; RequestError if the text has changed
        since.
        """
        with self.store.writing():
            row, text = provenance.trust(self.store, project, path, content, by=author)
            return self._judge_again(row, text)

    def lower(self, project: str, path: str, revision: int) -> str | None:
        """Mark the lines as untrusted that an agent added in a revision. Return the document's new
        trust class, or None if there are no such lines.

        Raises NotFoundError if the document does not exist.
        """
        with self.store.writing():
            found = provenance.lower(self.store, project, path, revision)
            return None if found is None else self._judge_again(*found)

    def _judge_again(self, row: DocumentRow, text: str) -> str:
        for known in self.store.documents.by_id([row.id]):
            self.store.behind(self._judge(self.store, known, text, time.time()))
        return self.store.documents.by_id([row.id])[0].class_

    def _result(
        self,
        row: DocumentRow,
        text: str,
        *,
        changed: bool,
        merged: bool = False,
        clash: bool = False,
        previous: str | None = None,
        lines: int = 0,
    ) -> PutResult:
        return PutResult(row.revision, row.hash, text, changed, merged, clash, 0, previous, lines)

    def _count_queued(self) -> int:
        live = next((one for one in self.store.vectors.generations() if one.live), None)
        return self.store.pieces.count() if live is None else self.store.vectors.waiting_count(live.id)

    def _text(self, row: DocumentRow) -> str:
        revision = self.store.documents.revision(row.id, row.revision)
        if revision is None or revision.text is None:
            raise DamagedError("the newest text of the document is lost", hint=LOST_HINT)
        return revision.text


def ancestor_of(store: Store, row: DocumentRow, base: int, base_hash: str | None) -> int:
    """Return the revision of a document that a device's file comes from, or 0 if it is unknown.

    A device names the revision that it last knew; for a deleted document, it names the revision
    that deleted it, with the hash `REMOVED`. After a restore of the data folder from an older copy,
    revision numbers may be used again for other texts. With the number alone, another device's
    lines could look as if this device had deleted them. So the revision is found by the hash of its
    text; the number counts only if the device sends no hash.
    """
    if not base or base_hash is None:
        return base if base <= row.revision else 0
    here = store.documents.hash_at(row.id, base)
    if base_hash == REMOVED:
        return base if here == "" else 0
    if here == base_hash or (here is not None and store.texts.is_rewritten(row.id, base)):
        return base
    return store.documents.number_of(row.id, base_hash)


def before_the_loss(store: Store, row: DocumentRow, base: int, base_hash: str | None) -> int:
    """Return the last revision of a document from before a restore of the data folder, if the
    device's base was lost in that restore. Otherwise return 0.

    The lost base was made from the returned revision or a later one, since numbers grow. The result
    is 0, too, if the time of the restore is unknown.
    """
    life = store.lives.newest()
    is_lost = base_hash not in (None, REMOVED) and life is not None and (base - 1) // NUMBERS == life.restores - 1
    if not base or life is None or life.back_to is None or not is_lost:
        return 0
    return store.documents.newest_until(row.id, below=base, moment=life.back_to)


def states(store: Store, project: str) -> list[tuple[str, str, int]]:
    """Return (path, hash, revision) of every document that is synchronized with devices."""
    rows = store.documents.list_documents(frozenset((project,)))
    return [(row.path, row.hash, row.revision) for row in rows if row.source != "sessions" and not row.deleted]


def compare_states(
    store: Store,
    project: str,
    entries: Iterable[tuple[str, str, int]],
    gone: Iterable[Gone],
    buckets: frozenset[int] | None = None,
) -> SyncComparison:
    """Return the actions that a device must take to agree with the space. The deletions in `gone`
    must be made before.

    Args:
        entries: (path, hash, base) of each file of the device; base is the revision that it last
            knew, 0 for none.
        gone: files that the device had and has deleted.
        buckets: compare only the documents of these buckets; None compares all.
    """
    result = SyncComparison()
    forgotten, guards = document_history.forgotten_names(store, project), store.forgettings.guards()
    rows = _compared_rows(store, project, buckets)
    here = set()
    for path, content, base in entries:
        here.add(path)
        row = rows.get(path)
        if row is not None and base <= row.revision and any(guard.is_file_wanted(content) for guard in guards):
            _replace_file(result, row)  # forgotten with the files
        elif any(guard.has_content(content) or guard.has_name(project, path) for guard in guards) or any(
            matches(path, name) for name in forgotten
        ):
            result.forgotten.append(path)  # the device keeps the file, and the space does not accept it
        elif row is None:
            result.send.append(path)
            result.unheld.add(path)
        else:
            _compare_file(store, result, row, content, base)
    lost = {path for path, *_ in gone}
    for path, row in rows.items():
        if path not in here and (not row.deleted or path in lost):
            _replace_file(result, row)
    result.drop.extend((path, 0) for path in sorted(lost - rows.keys() - here))
    return result


def _compared_rows(store: Store, project: str, buckets: frozenset[int] | None) -> dict[str, DocumentRow]:
    """Return the documents of these buckets by path, without transcripts, which are not
    synchronized to devices.
    """
    rows = (row for row in store.documents.list_documents(frozenset((project,))) if row.source != "sessions")
    return {row.path: row for row in rows if buckets is None or bucket_of(row.path) in buckets}


def _compare_file(store: Store, result: SyncComparison, row: DocumentRow, content: str, base: int) -> None:
    """Add the action for a file of the device whose document exists or is deleted."""
    if row.hash == content and not row.deleted:
        if base != row.revision:
            result.adopt.append((row.path, row.revision))
    elif base >= row.revision or not _is_unchanged(store, row, content, base):
        result.send.append(row.path)
        if base > row.revision:
            result.unheld.add(row.path)
    else:
        _replace_file(result, row)


def _replace_file(result: SyncComparison, row: DocumentRow) -> None:
    """Have the device take the document's newest text, or its deletion."""
    if row.deleted:
        result.drop.append((row.path, row.revision))
    else:
        result.pull.append((row.path, row.revision, row.hash))


def _is_unchanged(store: Store, row: DocumentRow, content: str, base: int) -> bool:
    """Return True if the device's file is still the revision that it last confirmed."""
    return store.documents.hash_at(row.id, base) == content
