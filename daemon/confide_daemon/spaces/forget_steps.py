"""Removes the texts that a record of forgetting names, one page of revisions at a time, on the
writer's thread. Also plans such a record.

Every revision is read, since a text may have been copied. A document whose name is in the record is
removed entirely; other documents lose only the forgotten parts. An interrupted removal starts over,
and finds only what it has not removed yet.
"""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from confide_crypto.sealing import placeholder
from confide_daemon.documents import transcripts
from confide_daemon.documents.changes import DocumentChange
from confide_daemon.documents.document_history import documents_named
from confide_daemon.documents.writer import Derive, Writer
from confide_daemon.store.rows import StoredText
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.forget_table import ForgetRow
from confide_memory import front_matter
from confide_memory.documents import source_of, text_hash
from confide_memory.forgetting import (
    LEAST_TEXT,
    MOST_NAMES,
    MOST_PARTS,
    MOST_SEALED,
    MOST_TEXTS,
    ForgetGuard,
    ForgetPart,
    Hashes,
    PartSet,
    hash_names,
    whole_hash,
)

PAGE_BYTES: Final = 512 * 1024
PAGE_TEXTS: Final = 64
"""Texts per transaction, so that other writes of the space do not wait long."""
MOST_SHARED: Final = 20
_SESSIONS: Final = "sessions"
_FIELD: Final = re.compile(r"([^\s#:-][^:]*):(?=\s|$)")
_ALIKE: Final = frozenset(
    {
        *("scope", "type", "category", "entity", "tags", "importance", "status", "sensitive"),
        *("created", "updated", "date"),
    }
)
"""Fields of notes that many have alike: as parts, they would refuse unrelated notes."""


@dataclass(frozen=True, slots=True)
class ForgetPlan:
    """The content of a record of forgotten texts before it is signed, and facts for the person who
    decides about it.

    Attributes:
        documents: (project, path) of documents to be removed, or to lose a part of their text.
        total: the number of these documents.
        shared: (project, path) of other documents that contain the same words and keep them.
        names, texts, parts, of_parts, sealed: as in `ForgetRecord`.
    """

    documents: tuple[tuple[str, str], ...]
    total: int
    shared: tuple[tuple[str, str], ...]
    names: tuple[bytes, ...]
    texts: tuple[bytes, ...]
    parts: tuple[ForgetPart, ...]
    of_parts: int
    sealed: tuple[bytes, ...]


def texts_of(store: Store, after: int = 0) -> Iterator[tuple[StoredText, str]]:
    """Yield every readable text of the space in the order of changes, beginning after change number
    `after`.
    """
    while found := store.texts.list_texts(after, most_bytes=PAGE_BYTES, most=PAGE_TEXTS):
        for one in found:
            after = one.change
            if (text := _unpack(one)) is not None:
                yield one, text


def _unpack(one: StoredText) -> str | None:
    try:
        return zlib.decompress(one.packed).decode()
    except (zlib.error, UnicodeDecodeError):
        return None  # damaged, and found by the maintenance


def plan(
    store: Store,
    key: bytes,
    project: str | None,
    asked: Sequence[str],
    parts: Sequence[ForgetPart],
    *,
    reaches: Callable[[str, str], bool],
) -> ForgetPlan:
    """Plan what to forget: named documents of a project, or parts of a text in all projects.

    Args:
        key: the key for the hashes in the record.
        project: the project of the names; None to use `parts` instead.
        asked: paths, folders and note ids in the project; empty for the whole project.
        parts: the parts of a text to forget in all projects.
        reaches: returns True if the caller may write the document (project, path).
    """
    with store.reading():
        if project is None:
            return _plan_parts(store, key, parts, reaches)
        targets = documents_named(store, project, list(asked) or [""], reaches=lambda path: reaches(project, path))
        paths = {(row.project, row.path) for row in targets}
        is_whole = not any(asked)
        own: dict[ForgetPart, None] = {}
        contents: dict[str, int] = {}
        sealed: set[bytes] = set()
        hashes = Hashes(key)
        for one, text in texts_of(store):
            if (one.project, one.path) in paths or (is_whole and one.project == project):
                own |= dict.fromkeys(hashes.of_text(_own_words(text)))
                contents[text_hash(text)] = len(text)
                sealed |= _secret_ids_in(text)
        shared, theirs, still = _shared(store, PartSet(key, own), contents, paths, project if is_whole else None)
        kept = [part for part in own if part not in theirs]
        documents = tuple(sorted(paths))
        wholes = [content for content, size in contents.items() if size >= LEAST_TEXT and content not in theirs]
        return ForgetPlan(
            documents,
            len(documents),
            shared,
            hash_names(key, project, asked, [path for _, path in documents])[:MOST_NAMES],
            tuple(whole_hash(key, content) for content in wholes[-MOST_TEXTS:]),
            _spread(kept),
            len(kept),
            tuple(sorted(sealed - still))[:MOST_SEALED],
        )


def _own_words(text: str) -> str:
    """Return a text without the fields of its front matter in `_ALIKE`."""
    head, body = front_matter.split(text)
    kept: list[str] = []
    is_kept = True
    for line in head.splitlines():
        if found := _FIELD.match(line):
            is_kept = found[1].strip().casefold() not in _ALIKE
        kept += [line] if is_kept else []
    return "\n".join([*kept, body])


def _shared(
    store: Store, own: PartSet, contents: dict[str, int], paths: set[tuple[str, str]], whole: str | None
) -> tuple[tuple[tuple[str, str], ...], set[ForgetPart | str], set[bytes]]:
    """Return the documents that keep some of these parts or texts, these, and the sealed ids that
    other texts use.
    """
    shared: dict[tuple[str, str], None] = {}
    theirs: set[ForgetPart | str] = set()
    still: set[bytes] = set()
    for one, text in texts_of(store):
        name = one.project, one.path
        if name in paths or one.project == whole:
            continue
        still |= _secret_ids_in(text)
        if not one.is_newest or source_of(one.path) == _SESSIONS:
            continue  # a copy in the history or in a transcript goes too
        found: set[ForgetPart | str] = {part for part, _, _ in own.find(text)}
        found |= {one.hash} & contents.keys()
        if found:
            theirs |= found
            shared[name] = None
    return tuple(shared)[:MOST_SHARED], theirs, still


def _plan_parts(
    store: Store, key: bytes, parts: Sequence[ForgetPart], reaches: Callable[[str, str], bool]
) -> ForgetPlan:
    wanted = PartSet(key, parts)
    documents: dict[tuple[str, str], None] = {}
    texts: dict[bytes, None] = {}
    sealed: set[bytes] = set()
    still: set[bytes] = set()
    for one, text in texts_of(store):
        is_meant = wanted.is_in(text)
        still |= _secret_ids_in(wanted.cut(text) if is_meant else text)
        if is_meant and reaches(one.project, one.path):
            documents[one.project, one.path] = None
            sealed |= _secret_ids_in(text)
            if len(text) >= LEAST_TEXT:
                texts[whole_hash(key, one.hash)] = None
    return ForgetPlan(
        tuple(sorted(documents)),
        len(documents),
        (),
        (),
        tuple(texts)[-MOST_TEXTS:],
        tuple(parts)[:MOST_PARTS],
        len(parts),
        tuple(sorted(sealed - still))[:MOST_SEALED],
    )


def _spread(parts: Sequence[ForgetPart]) -> tuple[ForgetPart, ...]:
    """Return as many parts as a record holds, taken evenly from all."""
    step = len(parts) / MOST_PARTS
    return tuple(parts) if step <= 1 else tuple(parts[int(number * step)] for number in range(MOST_PARTS))


def _secret_ids_in(text: str) -> set[bytes]:
    return {found.secret_id for _, _, found in placeholder.find(text)}


@dataclass
class ForgetSteps:
    """The removal of the texts that one record names. Call `step` until it returns False.

    Attributes:
        changes: new revisions to announce to the devices, if the record also removes their files.
        documents: the number of documents removed or cut so far.
    """

    writer: Writer
    row: ForgetRow
    guard: ForgetGuard
    derive: Derive
    changes: list[DocumentChange] = field(default_factory=list)
    documents: int = 0
    _after: int = 0
    _still: set[bytes] = field(default_factory=set)
    _sessions: set[str] = field(default_factory=set)
    _dropped_documents: set[tuple[str, str]] = field(default_factory=set)

    def step(self) -> bool:
        """Remove the record's texts from the next page of revisions, in one transaction; return
        False after the last page.
        """
        store = self.writer.store
        with store.writing():
            page = store.texts.list_texts(self._after, most_bytes=PAGE_BYTES, most=PAGE_TEXTS)
            for one in page:
                self._after = one.change
                text = _unpack(one)
                if text is not None and (one.project, one.path) not in self._dropped_documents:
                    self._remove(store, one, text)
            if not page:
                now = time.time()
                for identity in self.row.signed.record.sealed:
                    if identity not in self._still:
                        store.sealed_records.drop(identity, now=now)
        if page:
            return True
        for project in self._sessions:
            for agent, session in store.transcripts.sessions(project):
                name = transcripts.SessionName(project, agent, session)
                transcripts.forget(store, name, author=self.row.author, derive=self.derive)
        return False

    def _remove(self, store: Store, one: StoredText, text: str) -> None:
        if self.guard.has_name(one.project, one.path):
            if source_of(one.path) == _SESSIONS:
                self._sessions.add(one.project)
                return
            row = store.documents.find(one.project, one.path)
            if row is None:
                return
            buried = self.writer.drop(row, self.row.author)
            self._dropped_documents.add((one.project, one.path))
            self.documents += 1
            if self.row.signed.record.file and not row.deleted:
                self.changes.append(DocumentChange(row.project, row.path, buried.revision, "", row.hash, None))
            return
        left = self.guard.cut(text)
        if left == text:
            self._still |= _secret_ids_in(text)
            return
        self._still |= _secret_ids_in(left)
        self._cut(store, one, text, left)

    def _cut(self, store: Store, one: StoredText, text: str, left: str) -> None:
        self.documents += one.is_newest
        if one.is_newest and self.row.signed.record.file and source_of(one.path) != _SESSIONS:
            row = store.documents.find(one.project, one.path)
            assert row is not None
            result = self.writer.keep_cut(row, left, self.row.author)
            self.changes.append(DocumentChange.of(row.project, row.path, result, row.hash))
            one = one._replace(is_newest=False)
        document = store.texts.cut(one, text, left)
        for row in store.documents.by_id([] if document is None else [document]):
            self.derive(store, row, left, time.time())
