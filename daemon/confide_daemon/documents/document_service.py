"""The asynchronous service for the documents, transcripts and projects of a space. It runs reads
and writes on the database's threads, counts uses, and links projects.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from confide_crypto.errors import ConfideError
from confide_daemon.documents import document_history, provenance, transcripts
from confide_daemon.documents.document_results import DocumentText, PutResult, SyncComparison
from confide_daemon.documents.writer import LOST_HINT, Gone, Writer, compare_states, states
from confide_daemon.errors import BadNameError, DamagedError, NotFoundError
from confide_daemon.store.rows import DocumentRow, Filter, PieceChanges, ProjectRow
from confide_daemon.store.space_store import Store
from confide_daemon.store.threads import StoreThreads
from confide_memory.documents import GLOBAL_PROJECT, iso, source_of, text_hash

T = TypeVar("T")
P = ParamSpec("P")


NEAR_NAMES = 5


def _read(store: Store, project: str, path: str, revision: int | None) -> DocumentText:
    """Return a revision of a document. Raises NotFoundError."""
    with store.reading():
        row = store.documents.find(project, path)
        if row is None or (row.deleted and revision is None):
            raise NotFoundError("no such document", hint=_near_names(store, project, path))
        found = store.documents.revision(row.id, row.revision if revision is None else revision)
    if found is None and (revision is None or revision == row.revision):
        raise DamagedError("the newest text of the document is lost", hint=LOST_HINT)
    if found is None:
        raise NotFoundError(f"the document has no revision {revision}", hint=f"its newest is {row.revision}")
    if found.text is None:
        raise NotFoundError(f"revision {found.number} deleted the document", hint="ask for the one before")
    updated_at = iso(found.created_at)
    class_ = store.classes.class_of(row.id, found.number)
    return DocumentText(
        row.project, row.path, found.text, found.number, found.hash, found.author, updated_at, row.id, class_
    )


def _newest_text(store: Store, project: str, path: str) -> str | None:
    """Return the current text of a document, or None; unlike `_read` it does not look for similar
    names, which scans all documents.
    """
    row = store.documents.find(project, path)
    return None if row is None or row.deleted else _read(store, project, path, None).text


def _near_names(store: Store, project: str, path: str) -> str:
    """Return a hint with the most similar paths of the same source; the caller may reach no other
    source.
    """
    present = [row.path for row in store.documents.list_documents(frozenset((project,))) if not row.deleted]
    present = [name for name in present if source_of(name) == source_of(path)]
    same_name = [name for name in present if name.rsplit("/", 1)[-1] == path.rsplit("/", 1)[-1]]
    near = list(dict.fromkeys(same_name + difflib.get_close_matches(path, present, NEAR_NAMES, 0.5)))[:NEAR_NAMES]
    return f"did you mean {', '.join(near)}?" if near else "memory_search and confide search show the paths there are"


def _in_writer(
    write: Callable[Concatenate[Writer, P], T],
) -> Callable[Concatenate[Documents, P], Coroutine[Any, Any, T]]:
    """Make an async method that runs the writer's method on the writer's thread and notifies the
    index.
    """

    @wraps(write)
    async def run(self: Documents, /, *args: P.args, **kwargs: P.kwargs) -> T:
        change: Callable[P, T] = getattr(self._writer, write.__name__)
        return await self.change(lambda: change(*args, **kwargs))

    return run


class Indexing(Protocol):
    """The interface of a space's index that the document service uses."""

    @property
    def derivation(self) -> Derives:
        """The object that derives the index rows of a document, within the transaction that changes
        the document.
        """

    def note_change(self) -> None:
        """Notify the index that documents have changed."""


class Derives(Protocol):
    """Updates the rows that are derived from documents, such as chunks."""

    def keep(self, store: Store, row: DocumentRow, text: str | None, now: float) -> PieceChanges:
        """Update the derived rows of a document for its new text. None as the text means that the
        document was deleted; its rows are then deleted too.
        """

    def extend(self, store: Store, row: DocumentRow, before: str, added: str, now: float) -> None:
        """Update the derived rows of a document after text was appended to it."""


@dataclass(frozen=True, slots=True)
class Documents:
    """Reads and writes the documents of a space."""

    _threads: StoreThreads
    _writer: Writer
    _index: Indexing

    async def change(self, work: Callable[[], T]) -> T:
        """Run a function that writes on the writer's thread, then notify the index."""
        try:
            return await self._threads.write(lambda _store: work())
        finally:
            # Also if the waiting connection broke: the thread makes the change all the same.
            self._index.note_change()

    put = _in_writer(Writer.put)
    append = _in_writer(Writer.append)
    replace = _in_writer(Writer.replace)
    remove = _in_writer(Writer.remove)
    delete = _in_writer(Writer.delete)
    restore = _in_writer(Writer.restore)
    trust = _in_writer(Writer.trust)
    lower = _in_writer(Writer.lower)
    forget = _in_writer(Writer.forget)

    async def paths_to_forget(self, project: str, asked: Sequence[str], *, reaches: Callable[[str], bool]) -> list[str]:
        """Return the paths of the documents that would be removed if a user forgot these names."""

        def work(store: Store) -> list[str]:
            with store.reading():
                return [row.path for row in document_history.documents_named(store, project, asked, reaches=reaches)]

        return await self._threads.read(work)

    async def take_again(self, project: str, asked: Sequence[str]) -> tuple[str, ...]:
        """Accept documents with these forgotten names again. Return the names that had been
        forgotten.
        """
        return await self._threads.write(lambda store: document_history.undo_forgotten(store, project, asked))

    async def doubts(self, project: str, path: str) -> provenance.Doubts:
        """Return the untrusted lines of a document. Raises NotFoundError if it does not exist."""

        def work(store: Store) -> provenance.Doubts:
            with store.reading():
                return provenance.doubts(store, project, path)

        return await self._threads.read(work)

    async def read(self, project: str, path: str, *, revision: int | None = None) -> DocumentText:
        """Return a document at a revision; None reads the newest. Raises NotFoundError, with
        similar names as a hint, if the document or the revision does not exist.
        """
        return await self._threads.read(lambda store: _read(store, project, path, revision))

    async def newest_text(self, project: str, path: str) -> str | None:
        """Return the current text of a document, or None if it does not exist. In that case it is
        cheaper than `read`, which searches for similar names.
        """
        return await self._threads.read(lambda store: _newest_text(store, project, path))

    async def hash_at(self, project: str, path: str, revision: int) -> str | None:
        """Return the hash of a revision's text, or None if the revision does not exist."""

        def work(store: Store) -> str | None:
            row = store.documents.find(project, path)
            return None if row is None else store.documents.hash_at(row.id, revision)

        return await self._threads.read(work)

    async def revision_with(self, project: str, path: str, content: str) -> int | None:
        """Return the number of the newest revision of a document whose text has this hash, or None
        if there is none.
        """

        def work(store: Store) -> int | None:
            row = store.documents.find(project, path)
            return (store.documents.number_of(row.id, content) or None) if row is not None else None

        return await self._threads.read(work)

    async def list_documents(
        self, projects: frozenset[str] | None, *, sources: frozenset[str] | None
    ) -> list[DocumentRow]:
        """Return the documents of these projects and sources (None for all), sorted by name."""

        def work(store: Store) -> list[DocumentRow]:
            return [
                row
                for row in store.documents.list_documents(projects)
                if not row.deleted and (sources is None or row.source in sources)
            ]

        return await self._threads.read(work)

    async def following(
        self, projects: frozenset[str] | None, after: tuple[str, str], *, sources: frozenset[str] | None, limit: int
    ) -> list[DocumentRow]:
        """Return the documents of these projects and sources (None for all), sorted by name. Begin
        after the document that `after` names as (project, path).
        """
        return await self._threads.read(
            lambda store: store.documents.following(projects, after, sources=sources, limit=limit)
        )

    async def has_word(self, word: str, projects: frozenset[str] | None, sources: frozenset[str] | None) -> bool:
        """Return True if a document of these projects and sources (None for all) contains this word
        of letters and digits.
        """
        allowed = Filter(projects=projects, sources=sources)
        return bool(await self._threads.read(lambda store: store.keywords.candidates(f'"{word}"', allowed, limit=1)))

    async def refill(
        self, project: str, path: str, text: str, *, author: str, is_dry: bool = False
    ) -> tuple[str, PutResult | None]:
        """Create a document if it does not exist, and return `new`. If it exists, leave it
        unchanged, and return `same` if it has this text or `differs` if it has another. With
        `is_dry`, only report what would happen.
        """
        digest = text_hash(text)

        def work() -> tuple[str, PutResult | None]:
            row = self._writer.store.documents.find(project, path)
            if row is not None and not row.deleted:
                return ("same" if row.hash == digest else "differs"), None
            return "new", None if is_dry else self._writer.create(project, path, text, author=author)

        return await self.change(work)

    async def compare(
        self,
        project: str,
        entries: Iterable[tuple[str, str, int]],
        gone: Iterable[Gone],
        *,
        buckets: frozenset[int] | None = None,
        author: str = "",
    ) -> SyncComparison:
        """Return the actions that a device must take (send, adopt, pull, drop), given the files
        that it has. Delete documents here if the device has deleted their files.

        `buckets`: compare only the documents of these buckets; None compares all.
        """
        here, lost = list(entries), list(gone)

        def work(store: Store) -> SyncComparison:
            if lost:
                self._writer.bury(project, lost, author=author)
            return compare_states(store, project, here, lost, buckets)

        return await self._threads.write(work)

    async def states(self, project: str) -> list[tuple[str, str, int]]:
        """Return (path, hash, revision) of every document that is synchronized with devices."""
        return await self._threads.read(lambda store: states(store, project))


@dataclass(frozen=True, slots=True)
class Transcripts:
    """Reads and writes the session transcripts of a space."""

    _threads: StoreThreads
    _index: Indexing

    async def state(self, name: transcripts.SessionName) -> transcripts.SessionProgress:
        return await self._threads.read(lambda store: transcripts.state(store, name))

    async def take(self, batch: transcripts.MessageBatch, *, author: str) -> tuple[transcripts.SessionProgress, bool]:
        """Store a batch of messages if it continues from the stored position. Return the position
        now, and True if the batch was stored.
        """
        try:
            return await self._threads.write(
                lambda store: transcripts.take(
                    store,
                    batch,
                    author=author,
                    derive=self._index.derivation.keep,
                    extend=self._index.derivation.extend,
                )
            )
        finally:
            self._index.note_change()

    async def sessions(self, project: str) -> list[transcripts.SessionName]:
        """Return the sessions of a project whose transcripts may be stored here."""
        found = await self._threads.read(lambda store: store.transcripts.sessions(project))
        return [transcripts.SessionName(project, agent, session) for agent, session in found]

    async def forget(self, name: transcripts.SessionName, *, author: str) -> transcripts.SessionProgress:
        """Delete a session's transcript for good, including its texts. Return the position after
        that.
        """
        return await self._threads.write(
            lambda store: transcripts.forget(store, name, author=author, derive=self._index.derivation.keep)
        )


MAX_LISTED = 500
MAX_LINKS = 32
"""Links per project; a search includes all linked projects."""


class Projects:
    """The projects of a space and the links between them.

    A link is symmetric and applies to every device of the space. It makes a search that names no
    project include the linked projects. It never widens what a client may access, because each
    query checks that.
    """

    def __init__(self, threads: StoreThreads) -> None:
        self._threads = threads
        self._links: frozenset[tuple[str, str]] = frozenset()

    async def open(self) -> None:
        """Read the links into memory. Only this object changes them while the space is open."""
        self._links = frozenset(await self._threads.read(lambda store: store.projects.links()))

    def linked_projects(self, project: str) -> frozenset[str]:
        """Return the projects that are linked with this one."""
        return frozenset(one if other == project else other for one, other in self._links if project in (one, other))

    async def list_projects(self, names: frozenset[str] | None, sources: frozenset[str] | None) -> list[ProjectRow]:
        """Return the projects that have documents, last changed first, at most `MAX_LISTED`.
        `names` and `sources` select some of them; None selects all.
        """
        return await self._threads.read(lambda store: store.projects.list_projects(names, sources, limit=MAX_LISTED))

    async def link(self, project: str, other: str, *, known: Iterable[str]) -> None:
        """Link two projects. `known` contains the projects that the client may know of. Raises
        BadNameError if this link is not possible; NotFoundError if `other` is not among `known`.
        """
        if other == project:
            raise BadNameError(
                "a project is not linked with itself", hint="name another one; confide project ls lists them"
            )
        if GLOBAL_PROJECT in (project, other):
            raise BadNameError("the global memory is searched with every project already", hint="no link is needed")
        names = sorted(set(known) - {project})
        if other not in names:
            near = difflib.get_close_matches(other, names, 3, 0.5)
            hint = f"did you mean {', '.join(near)}?" if near else "confide project ls lists those there are"
            raise NotFoundError("there is no such project in this space", hint=hint)
        if other not in self.linked_projects(project):
            for name in (project, other):
                if len(self.linked_projects(name)) >= MAX_LINKS:
                    raise BadNameError(
                        f"a project has at most {MAX_LINKS} links", hint="confide project link --remove ends one"
                    )

        def work(store: Store) -> list[tuple[str, str]]:
            with store.writing():
                store.projects.add_link(project, other, now=time.time())
                return store.projects.links()

        self._links = frozenset(await self._threads.write(work))

    async def unlink(self, project: str, other: str) -> None:
        """Remove the link between two projects. Raises NotFoundError if they are not linked."""
        if other not in self.linked_projects(project):
            raise NotFoundError("the two projects are not linked", hint="confide project link lists what is")

        def work(store: Store) -> list[tuple[str, str]]:
            with store.writing():
                store.projects.remove_link(project, other)
                return store.projects.links()

        self._links = frozenset(await self._threads.write(work))


log = logging.getLogger(__name__)
# Time for which the first use waits for others to be written with it: each write makes searches
# list their allowed documents again.
WRITTEN_AFTER_S = 5.0
# Documents with unwritten uses, at most; more than a caller can read in that time. Further ones are
# not counted.
MOST_WAITING = 10_000


class DocumentUsage:
    """Counts how often documents are read or shown as search results. Counts are held in memory and
    written every few seconds.

    They are not part of the read's transaction, so a read does not wait for them. A crash loses the
    counts of some seconds.
    """

    def __init__(self, threads: StoreThreads, clock: Callable[[], float] = time.time) -> None:
        """Make the counter; `clock` returns seconds since 1970."""
        self._threads = threads
        self._clock = clock
        self._waiting: Counter[int] = Counter()
        self._writing: Counter[int] = Counter()
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    def count(self, documents: Iterable[int]) -> None:
        """Count one use of each of these documents. Call on the space's event loop."""
        if self._closing:
            return
        for document in set(documents):
            if document in self._waiting or len(self._waiting) < MOST_WAITING:
                self._waiting[document] += 1
        if self._waiting and self._task is None:
            self._task = asyncio.create_task(self._write_later(), name="confide-usage")

    def waiting(self, document: int) -> int:
        """Return how many uses of a document are counted but not yet written to the database."""
        return self._waiting[document] + self._writing[document]

    async def close(self) -> None:
        self._closing = True
        if self._task is not None:
            if not self._writing:
                self._task.cancel()
            await asyncio.wait([self._task])
        await self._write()

    async def _write_later(self) -> None:
        await asyncio.sleep(WRITTEN_AFTER_S)
        await self._write()
        self._task = None
        self.count(())  # uses counted meanwhile

    async def _write(self) -> None:
        if not self._waiting:
            return
        self._writing, self._waiting = self._waiting, Counter()
        uses, now = dict(self._writing), self._clock()

        def work(store: Store) -> None:
            with store.writing_derived():
                store.documents.count_uses(uses, now=now)

        try:
            await self._threads.maintain(work)
        except ConfideError as error:
            log.warning("uses could not be counted: %s", type(error).__name__)
        finally:
            self._writing = Counter()
