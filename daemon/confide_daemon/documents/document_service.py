"""The documents, transcripts and projects of a space, for everybody: what is read, what changes in the thread that writes, how often each
is used, and which projects are searched together."""

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
    """One revision of a document. Raises NotFoundError."""
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
    """The text that a document has now; None where there is none, and no names like it, which are a walk over all."""
    row = store.documents.find(project, path)
    return None if row is None or row.deleted else _read(store, project, path, None).text


def _near_names(store: Store, project: str, path: str) -> str:
    """A hint with the paths most like the one asked for, of its source: whoever asks may reach no other."""
    present = [row.path for row in store.documents.listed(frozenset((project,))) if not row.deleted]
    present = [name for name in present if source_of(name) == source_of(path)]
    same_name = [name for name in present if name.rsplit("/", 1)[-1] == path.rsplit("/", 1)[-1]]
    near = list(dict.fromkeys(same_name + difflib.get_close_matches(path, present, NEAR_NAMES, 0.5)))[:NEAR_NAMES]
    return f"did you mean {', '.join(near)}?" if near else "memory_search and confide search show the paths there are"


def _in_writer(
    write: Callable[Concatenate[Writer, P], T],
) -> Callable[Concatenate[Documents, P], Coroutine[Any, Any, T]]:
    """The writer's method for everybody: made in its thread, and the index hears of it."""

    @wraps(write)
    async def run(self: Documents, /, *args: P.args, **kwargs: P.kwargs) -> T:
        change: Callable[P, T] = getattr(self._writer, write.__name__)
        return await self.change(lambda: change(*args, **kwargs))

    return run


class Indexing(Protocol):
    """The index of a space, told of what changes."""

    @property
    def derivation(self) -> Derives:
        """What is derived of a document, within the transaction that changes it."""

    def changed(self) -> None:
        """There is more to index."""


class Derives(Protocol):
    """Keeps what is derived of documents in step with their texts."""

    def keep(self, store: Store, row: DocumentRow, text: str | None, now: float) -> PieceChanges:
        """The document has this text now; None: it is deleted."""

    def extend(self, store: Store, row: DocumentRow, before: str, added: str, now: float) -> None:
        """The document got more text at its end."""


@dataclass(frozen=True, slots=True)
class Documents:
    """The documents of one space."""

    _threads: StoreThreads
    _writer: Writer
    _index: Indexing

    async def change(self, work: Callable[[], T]) -> T:
        """Runs a write in the thread that writes; the index hears of it."""
        try:
            return await self._threads.write(lambda _store: work())
        finally:
            # Also where nobody waits any more, since its connection broke: the thread makes the change all the same.
            self._index.changed()

    put = _in_writer(Writer.put)
    append = _in_writer(Writer.append)
    replace = _in_writer(Writer.replace)
    remove = _in_writer(Writer.remove)
    delete = _in_writer(Writer.delete)
    restore = _in_writer(Writer.restore)
    trust = _in_writer(Writer.trust)
    lower = _in_writer(Writer.lower)
    forget = _in_writer(Writer.forget)

    async def meant(self, project: str, asked: Sequence[str], *, reaches: Callable[[str], bool]) -> list[str]:
        """The paths of the documents that would be forgotten with these names."""

        def work(store: Store) -> list[str]:
            with store.reading():
                return [row.path for row in document_history.meant_by(store, project, asked, reaches=reaches)]

        return await self._threads.read(work)

    async def take_again(self, project: str, asked: Sequence[str]) -> tuple[str, ...]:
        """Undoes that names are forgotten; which of them were."""
        return await self._threads.write(lambda store: document_history.undo_forgotten(store, project, asked))

    async def doubts(self, project: str, path: str) -> provenance.Doubts:
        """What of a document is untrusted. Raises NotFoundError."""

        def work(store: Store) -> provenance.Doubts:
            with store.reading():
                return provenance.doubts(store, project, path)

        return await self._threads.read(work)

    async def read(self, project: str, path: str, *, revision: int | None = None) -> DocumentText:
        """A document, at its newest revision or an older one. Raises NotFoundError, with names like it as a hint."""
        return await self._threads.read(lambda store: _read(store, project, path, revision))

    async def newest_text(self, project: str, path: str) -> str | None:
        """The text that a document has now; None where there is none, or it was deleted. Cheaper there than `read`."""
        return await self._threads.read(lambda store: _newest_text(store, project, path))

    async def hash_at(self, project: str, path: str, revision: int) -> str | None:
        """The hash of a revision's text; None where there is no such revision."""

        def work(store: Store) -> str | None:
            row = store.documents.find(project, path)
            return None if row is None else store.documents.hash_at(row.id, revision)

        return await self._threads.read(work)

    async def revision_with(self, project: str, path: str, content: str) -> int | None:
        """The newest revision of a document whose text has this hash; None where none has."""

        def work(store: Store) -> int | None:
            row = store.documents.find(project, path)
            return (store.documents.number_of(row.id, content) or None) if row is not None else None

        return await self._threads.read(work)

    async def listed(self, projects: frozenset[str] | None, *, sources: frozenset[str] | None) -> list[DocumentRow]:
        """The documents of these projects and sources (None: all), by name."""

        def work(store: Store) -> list[DocumentRow]:
            return [
                row
                for row in store.documents.listed(projects)
                if not row.deleted and (sources is None or row.source in sources)
            ]

        return await self._threads.read(work)

    async def following(
        self, projects: frozenset[str] | None, after: tuple[str, str], *, sources: frozenset[str] | None, limit: int
    ) -> list[DocumentRow]:
        """The documents of these projects and sources (None: all), by name, from the first above (project, path)."""
        return await self._threads.read(
            lambda store: store.documents.following(projects, after, sources=sources, limit=limit)
        )

    async def has_word(self, word: str, projects: frozenset[str] | None, sources: frozenset[str] | None) -> bool:
        """Whether a document of these projects and sources (None: all) has this word, of letters and digits, in its text."""
        allowed = Filter(projects=projects, sources=sources)
        return bool(await self._threads.read(lambda store: store.keywords.candidates(f'"{word}"', allowed, limit=1)))

    async def refill(
        self, project: str, path: str, text: str, *, author: str, is_dry: bool = False
    ) -> tuple[str, PutResult | None]:
        """Makes a document that is not there: `new`, `same` where it holds just this, `differs` where it holds something else and stays."""
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
        """What a machine has to send, adopt, pull and drop, given its files (of some buckets); deletes here what it deleted."""
        here, lost = list(entries), list(gone)

        def work(store: Store) -> SyncComparison:
            if lost:
                self._writer.bury(project, lost, author=author)
            return compare_states(store, project, here, lost, buckets)

        return await self._threads.write(work)

    async def states(self, project: str) -> list[tuple[str, str, int]]:
        """(path, hash, revision) of every document that working copies have."""
        return await self._threads.read(lambda store: states(store, project))


@dataclass(frozen=True, slots=True)
class Transcripts:
    """The transcripts of one space."""

    _threads: StoreThreads
    _index: Indexing

    async def state(self, name: transcripts.SessionName) -> transcripts.SessionProgress:
        return await self._threads.read(lambda store: transcripts.state(store, name))

    async def take(self, batch: transcripts.MessageBatch, *, author: str) -> tuple[transcripts.SessionProgress, bool]:
        """Takes a batch of a transcript if it goes on from where that is: where it is now, and whether it was taken."""
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
            self._index.changed()

    async def sessions(self, project: str) -> list[transcripts.SessionName]:
        """The sessions of a project of which something may be here."""
        found = await self._threads.read(lambda store: store.transcripts.sessions(project))
        return [transcripts.SessionName(project, agent, session) for agent, session in found]

    async def forget(self, name: transcripts.SessionName, *, author: str) -> transcripts.SessionProgress:
        """Deletes a session's transcript, texts included, for good."""
        return await self._threads.write(
            lambda store: transcripts.forget(store, name, author=author, derive=self._index.derivation.keep)
        )


MAX_LISTED = 500
MAX_LINKS = 32
"""Of one project: a search looks into all of them."""


class Projects:
    """The projects of a space: what each holds, and which are searched together.

    A link holds both ways and for every machine of the space. It widens what a search looks at when it names no project, never what a
    caller may see: that is asked in each query.
    """

    def __init__(self, threads: StoreThreads) -> None:
        self._threads = threads
        self._links: frozenset[tuple[str, str]] = frozenset()

    async def open(self) -> None:
        """Read the links, which nobody else changes while the space is open."""
        self._links = frozenset(await self._threads.read(lambda store: store.projects.links()))

    def linked(self, project: str) -> frozenset[str]:
        """The projects that are linked with this one."""
        return frozenset(one if other == project else other for one, other in self._links if project in (one, other))

    async def listed(self, names: frozenset[str] | None, sources: frozenset[str] | None) -> list[ProjectRow]:
        """The projects that hold anything, the last changed first; at most `MAX_LISTED`."""
        return await self._threads.read(lambda store: store.projects.listed(names, sources, limit=MAX_LISTED))

    async def link(self, project: str, other: str, *, known: Iterable[str]) -> None:
        """Links two projects; `known`: those that the caller may be told of. Raises BadNameError, or NotFoundError: it is none of them."""
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
        if other not in self.linked(project):
            for name in (project, other):
                if len(self.linked(name)) >= MAX_LINKS:
                    raise BadNameError(
                        f"a project has at most {MAX_LINKS} links", hint="confide project link --remove ends one"
                    )

        def work(store: Store) -> list[tuple[str, str]]:
            with store.writing():
                store.projects.add_link(project, other, now=time.time())
                return store.projects.links()

        self._links = frozenset(await self._threads.write(work))

    async def unlink(self, project: str, other: str) -> None:
        """End a link. Raises NotFoundError: there is none."""
        if other not in self.linked(project):
            raise NotFoundError("the two projects are not linked", hint="confide project link lists what is")

        def work(store: Store) -> list[tuple[str, str]]:
            with store.writing():
                store.projects.remove_link(project, other)
                return store.projects.links()

        self._links = frozenset(await self._threads.write(work))


log = logging.getLogger(__name__)
# The first use waits so long for others to be written with it: each write makes searches list again which documents they may see.
WRITTEN_AFTER_S = 5.0
# Documents whose uses wait; more than a caller can read in that time. What is beyond is not counted.
MOST_WAITING = 10_000


class DocumentUsage:
    """How often documents are read, or shown among what a search found: counted in memory, written down every few seconds.

    Nothing waits for it, and a crash forgets some seconds of it: that is why it is not written with the read itself.
    """

    def __init__(self, threads: StoreThreads, clock: Callable[[], float] = time.time) -> None:
        """`clock`: seconds since 1970."""
        self._threads = threads
        self._clock = clock
        self._waiting: Counter[int] = Counter()
        self._writing: Counter[int] = Counter()
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    def count(self, documents: Iterable[int]) -> None:
        """One use of each of the documents; called in the space's event loop."""
        if self._closing:
            return
        for document in set(documents):
            if document in self._waiting or len(self._waiting) < MOST_WAITING:
                self._waiting[document] += 1
        if self._waiting and self._task is None:
            self._task = asyncio.create_task(self._write_later(), name="confide-usage")

    def waiting(self, document: int) -> int:
        """How many uses of the document are not in the database yet."""
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
        self.count(())  # what came meanwhile

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
