"""Finds notes of one place that say nearly the same, and makes one of each group: nothing is lost by it.

A group is around its newest note, to which all others of it are near. It is not a transitive closure: a chain of notes, each like the one
before, can end far from where it began.

The newest text stays, and takes the tags, the keywords and the importance of the others; that it supersedes them stands in its front
matter. The others stay as they are, readable and restorable, and are no part of a group any more.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from confide_daemon.documents.document_results import PutResult
from confide_daemon.embedding.embedder import Vectors
from confide_daemon.errors import ConflictError, NotFoundError
from confide_daemon.notes.note_service import SUPERSEDES, Notes
from confide_daemon.notes.similarity import Likeness, NoteFingerprint, likeness, read_compared
from confide_daemon.retrieval.indexing.generations import live_generation
from confide_daemon.store.rows import NoteRow
from confide_daemon.store.space_store import Store
from confide_daemon.store.threads import StoreThreads
from confide_memory import front_matter
from confide_memory import note as notes
from confide_memory.classes import AGENT, lowest
from confide_memory.note import IMPORTANCE, MAX_KEYWORDS, MAX_RELATIONS, MAX_TAGS, Note, Relation

# Notes that are compared at a time, so that no matrix grows with their square.
BLOCK = 256
# Notes of several pieces can be nearer than their centres are.
SLACK = 0.1
# Words that so many notes share say nothing of two of them.
MOST_SHARING = 200
# Notes in one group.
MOST_IN_GROUP = 64
# Notes read in one go: 20 ms.
SLICE = 500
# Notes of one call, the newest; 100 MB of texts and vectors at most, if all of them are long.
MOST_NOTES = 20_000

Tell = Callable[[int, int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class DuplicateGroup:
    """Notes by their places in what was given; each of `others` with how near it is to `newest`."""

    newest: int
    others: tuple[tuple[int, Likeness], ...]


@dataclass(frozen=True, slots=True)
class NearDuplicate:
    """A note of a group beside its newest."""

    row: NoteRow
    likeness: Likeness


@dataclass(frozen=True, slots=True)
class MergeProposal:
    """A group and what would become of it.

    Attributes:
        newest: the note that stays.
        older: those that it would supersede.
        body: the text that stays.
        tags, keywords, importance: what the newest note would have.
        changes: fields of its front matter that would change.
    """

    newest: NoteRow
    older: tuple[NearDuplicate, ...]
    body: str
    tags: tuple[str, ...]
    keywords: tuple[str, ...]
    importance: float
    changes: dict[str, object]


@dataclass(frozen=True, slots=True)
class DedupeResult:
    """The groups, the largest first; `compared` notes were looked at, and `left` older ones were not."""

    mergers: list[MergeProposal]
    compared: int
    left: int


@dataclass(frozen=True, slots=True)
class Deduplication:
    _threads: StoreThreads
    _notes: Notes

    async def find(self, projects: frozenset[str] | None, threshold: float, tell: Tell) -> DedupeResult:
        """The groups of the projects (None: of all): each of notes of one project, and of one task or none.

        `threshold`: how near each is to the newest at least. `tell` is told how many of how many steps are done.
        """
        places = await self._threads.read(lambda store: _places(store, projects))
        left = places[MOST_NOTES:]
        places = places[:MOST_NOTES]
        total, done, told = 2 * len(places), 0, 0
        seen: dict[int, NoteFingerprint] = {}
        for start in range(0, len(places), SLICE):
            documents = [document for document, _ in places[start : start + SLICE]]
            seen |= await self._threads.read(lambda store: _read(store, documents))  # noqa: B023 - awaited here
            done += len(documents)
            await tell(told := done, total)
        by_place: defaultdict[object, list[int]] = defaultdict(list)
        for document, place in places:
            if document in seen:
                by_place[place].append(document)
        found: list[tuple[int, list[tuple[int, Likeness]]]] = []
        for documents in by_place.values():
            steps = groups([seen[document] for document in documents], threshold)
            while (step := await asyncio.to_thread(next, steps, None)) is not None:
                for group in step:
                    others = [(documents[other], alike) for other, alike in group.others]
                    found.append((documents[group.newest], others))
                done = min(total, done + min(len(documents), BLOCK))
                if done - told >= SLICE:
                    await tell(told := done, total)
        mergers: list[MergeProposal] = []
        for start in range(0, len(found), SLICE):
            part = found[start : start + SLICE]
            mergers += await self._threads.read(lambda store: _mergers(store, part))  # noqa: B023 - awaited here
        mergers.sort(key=lambda one: (-len(one.older), -one.newest.updated_at, one.newest.id))
        return DedupeResult(mergers, len(seen), len(left))

    async def merge(self, merger: MergeProposal, *, author: str) -> PutResult:
        """Writes the fields of the newest note, in one transaction. Raises as `Notes.edit`, also where another one has changed or gone."""
        older = [alike.row for alike in merger.older]

        def check(store: Store) -> None:
            now = store.notes.named([row.id for row in older], None)
            for row in older:
                if row.id not in now:
                    raise NotFoundError("a note of the group is gone", hint="look for duplicates again")
                if now[row.id].revision != row.revision:
                    raise ConflictError(row.revision, now[row.id].revision)

        return await self._notes.edit(
            merger.newest,
            lambda text: front_matter.edit(text, merger.changes),
            author=author,
            base=merger.newest.revision,
            # Words of all of them are in it from now on.
            by=lowest((AGENT, *(row.class_ for row in older))),
            check=check,
        )


def _places(store: Store, projects: frozenset[str] | None) -> list[tuple[int, object]]:
    """(document, where it lies), the newest first, without what is superseded."""
    with store.reading():
        found = store.notes.places(projects)
        gone = store.notes.superseded([place.document for place in found], projects)
    return [(place.document, (place.project, place.task_id)) for place in found if place.document not in gone]


def _read(store: Store, documents: Sequence[int]) -> dict[int, NoteFingerprint]:
    with store.reading():
        live = live_generation(store)
        return read_compared(store, live.id if live is not None else None, documents)


def _mergers(store: Store, found: Sequence[tuple[int, Sequence[tuple[int, Likeness]]]]) -> list[MergeProposal]:
    return [merger for newest, others in found if (merger := _merger(store, newest, others)) is not None]


def _merger(store: Store, newest: int, others: Sequence[tuple[int, Likeness]]) -> MergeProposal | None:
    """What would become of the group; None where it has changed meanwhile."""
    with store.reading():
        kept = _note(store, newest)
        older = [(read, likeness) for document, likeness in others if (read := _note(store, document))]
    if kept is None or not older:
        return None
    row, note, fields = kept
    room = max(0, MAX_RELATIONS - len(note.relations))
    older = older[:room]
    notes_of = [other for (_, other, _), _ in older]
    # What a note does not say of its importance is no reason to change what another one says.
    stated = [other.importance for (_, other, own), _ in older if own.get("importance") is not None]
    tags = _united(note.tags, (other.tags for other in notes_of), MAX_TAGS)
    keywords = _united(note.keywords, (other.keywords for other in notes_of), MAX_KEYWORDS)
    importance = max([note.importance, *stated])
    changes: dict[str, object] = {}
    if tags != note.tags:
        changes["tags"] = list(tags)
    if keywords != note.keywords:
        changes["keywords"] = list(keywords)
    if importance != note.importance:
        changes["importance"] = next((word for word, value in IMPORTANCE.items() if value == importance), importance)
    held = fields.get("relations")
    entries = held if isinstance(held, list) else [relation.as_field() for relation in note.relations]
    changes["relations"] = [*entries, *(Relation(SUPERSEDES, old.id).as_field() for (old, _, _), _ in older)]
    alike = tuple(NearDuplicate(old, likeness) for (old, _, _), likeness in older)
    return MergeProposal(row, alike, note.body, tags, keywords, importance, changes) if alike else None


def _note(store: Store, document: int) -> tuple[NoteRow, Note, dict[str, Any]] | None:
    row = store.notes.of_document(document)
    revision = store.documents.revision(document, row.revision) if row is not None else None
    if row is None or revision is None or revision.text is None:
        return None
    return row, notes.read(row.project, row.path, revision.text), front_matter.parse(revision.text).fields


def _united(own: tuple[str, ...], others: Iterable[tuple[str, ...]], most: int) -> tuple[str, ...]:
    """All words, each once however it is written; the newest note's own first."""
    found = {word.casefold(): word for word in reversed(own)}
    kept = dict(reversed(found.items()))
    for words in others:
        for word in words:
            kept.setdefault(word.casefold(), word)
    return own if len(kept) == len(own) else tuple(kept.values())[: max(most, len(own))]


def groups(notes: Sequence[NoteFingerprint], threshold: float) -> Iterator[list[DuplicateGroup]]:
    """The groups among the notes, which are given the newest first; step by step, a list for each BLOCK of them."""
    centres = _centres(notes)
    is_single = np.array([len(note.weights) == 1 and not note.is_long for note in notes], dtype=np.bool_)
    sharing = _Sharing([frozenset(note.words.split()) for note in notes], threshold)
    taken = np.zeros(len(notes), dtype=np.bool_)
    for start in range(0, len(notes), BLOCK):
        found: list[DuplicateGroup] = []
        cosines = centres[start : start + BLOCK] @ centres[start:].T
        for row, place in zip(cosines, range(start, len(notes)), strict=False):
            if taken[place]:
                continue
            least = np.where(is_single[start:] & is_single[place], threshold - 1e-6, threshold - SLACK)
            near = {start + int(at) for at in np.flatnonzero(row >= least)} | sharing.with_words_of(place)
            others: list[tuple[int, Likeness]] = []
            for other in sorted(near):
                if other <= place or taken[other] or len(others) == MOST_IN_GROUP:
                    continue
                if alike := likeness(notes[place], notes[other], threshold):
                    others.append((other, alike))
            if others:
                taken[[place, *(other for other, _ in others)]] = True
                found.append(DuplicateGroup(place, tuple(others)))
        yield found


def _centres(notes: Sequence[NoteFingerprint]) -> Vectors:
    """A row for each note; zero where it has no vectors, so that it is near to none."""
    rows = [note.centre for note in notes]
    dimensions = next((len(row) for row in rows if row is not None), 1)
    centres = np.zeros((len(notes), dimensions), dtype=np.float32)
    for centre, row in zip(centres, rows, strict=True):
        if row is not None:
            centre[:] = row
    return centres


class _Sharing:
    """Which notes may have nearly the same words, by their rarest ones.

    Of two sets with a Jaccard index of j each must hold one of the (1 - j) |set| + 1 rarest words of the other (prefix filtering: Bayardo,
    Ma and Srikant, "Scaling up all pairs similarity search", WWW 2007), so that few notes meet at all.
    """

    def __init__(self, sets: Sequence[frozenset[str]], threshold: float) -> None:
        counts = Counter(word for words in sets for word in words)
        # A changed word is one less that both have and one more of all: letters and words agree about so well.
        jaccard = max(0.5, 2 * threshold - 1.1)
        self._rarest = []
        self._holders: defaultdict[str, list[int]] = defaultdict(list)
        for place, words in enumerate(sets):
            ordered = sorted(words, key=lambda word: (counts[word], word))
            rarest = ordered[: len(ordered) - math.ceil(jaccard * len(ordered)) + 1]
            self._rarest.append(rarest)
            for word in rarest:
                self._holders[word].append(place)

    def with_words_of(self, place: int) -> set[int]:
        """The notes that share a rare word with this one."""
        holders = [self._holders[word] for word in self._rarest[place]]
        return {other for held in holders if len(held) <= MOST_SHARING for other in held}
