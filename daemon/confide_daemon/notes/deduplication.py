"""Finds near-duplicate notes within a project, and merges each group into one note without losing
anything.

A group consists of its newest note and the notes that are similar to it. Similarity to another
member is not enough, because a chain of notes, each similar to the next, can end far from its
beginning.

The newest note keeps its text and gets the tags, keywords and importance of the others. Its front
matter states that it supersedes them. The others stay unchanged, readable and restorable, and are
not grouped again.
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
from confide_daemon.notes.similarity import (
    Likeness,
    NoteFingerprint,
    have_same_numbers,
    likeness,
    read_fingerprints,
)
from confide_daemon.retrieval.indexing.generations import live_generation
from confide_daemon.store.rows import NoteRow
from confide_daemon.store.space_store import Store
from confide_daemon.store.threads import StoreThreads
from confide_memory import front_matter
from confide_memory import note as notes
from confide_memory.classes import AGENT, lowest
from confide_memory.note import IMPORTANCE, MAX_KEYWORDS, MAX_RELATIONS, MAX_TAGS, Note, Relation

# Notes compared at a time, so that no matrix grows with the square of all notes.
BLOCK = 256
# Notes of several chunks can be nearer than their centres.
SLACK = 0.1
# Words that more notes share say nothing about a pair.
MOST_SHARING = 200
# Most notes in one group.
MOST_IN_GROUP = 64
# Notes read at once: 20 ms.
SLICE = 500
# Most notes of one call, the newest; at most 100 MB of texts and vectors, if all of them are long.
MOST_NOTES = 20_000

Tell = Callable[[int, int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class DuplicateGroup:
    """A group of near-duplicates, as indexes of notes. Each of `others` comes with its similarity
    to the note `newest`.
    """

    newest: int
    others: tuple[tuple[int, Likeness], ...]


@dataclass(frozen=True, slots=True)
class NearDuplicate:
    """An older note of a group of near-duplicates, with its similarity to the newest one."""

    row: NoteRow
    likeness: Likeness


@dataclass(frozen=True, slots=True)
class MergeProposal:
    """A group of near-duplicates, and the note that merging them would give.

    Attributes:
        newest: the note that would remain.
        older: the notes that it would supersede.
        body: its text, which does not change.
        tags, keywords, importance: the values that it would have.
        changes: the fields of its front matter that would change.
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
    """The groups of near-duplicates, largest first. `compared_notes` is the number of notes that
    were compared, `skipped_notes` that of older notes that were not.
    """

    mergers: list[MergeProposal]
    compared_notes: int
    skipped_notes: int


@dataclass(frozen=True, slots=True)
class Deduplication:
    _threads: StoreThreads
    _notes: Notes

    async def find(self, projects: frozenset[str] | None, threshold: float, tell: Tell) -> DedupeResult:
        """Return the groups of near-duplicates in the projects (None for all). All notes of a group
        belong to one project, and either to one task or to no task.

        `threshold`: the least similarity to the newest note of a group. `tell` is called with the
        number of finished steps and the number of all steps.
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
        """Write the merged fields into the newest note of a group, in one transaction.

        Raises NotFoundError or ConflictError if a note of the group was changed or deleted;
        UnreadableError, InvalidTextError or TooLargeError if the new text is not valid.
        """
        older = [alike.row for alike in merger.older]

        def check(store: Store) -> None:
            now = store.notes.notes_with_ids([row.id for row in older], None)
            for row in older:
                if row.id not in now:
                    raise NotFoundError("a note of the group was deleted", hint="look for duplicates again")
                if now[row.id].revision != row.revision:
                    raise ConflictError(row.revision, now[row.id].revision)

        return await self._notes.edit(
            merger.newest,
            lambda text: front_matter.edit(text, merger.changes),
            author=author,
            base=merger.newest.revision,
            # It contains words of all notes from now on.
            by=lowest((AGENT, *(row.class_ for row in older))),
            check=check,
        )


def _places(store: Store, projects: frozenset[str] | None) -> list[tuple[int, object]]:
    """Return (document, project and task), newest first, without superseded notes."""
    with store.reading():
        found = store.notes.places(projects)
        gone = store.notes.find_superseded([place.document for place in found], projects)
    return [(place.document, (place.project, place.task_id)) for place in found if place.document not in gone]


def _read(store: Store, documents: Sequence[int]) -> dict[int, NoteFingerprint]:
    with store.reading():
        live = live_generation(store)
        return read_fingerprints(store, live.id if live is not None else None, documents)


def _mergers(store: Store, found: Sequence[tuple[int, Sequence[tuple[int, Likeness]]]]) -> list[MergeProposal]:
    return [merger for newest, others in found if (merger := _merger(store, newest, others)) is not None]


def _merger(store: Store, newest: int, others: Sequence[tuple[int, Likeness]]) -> MergeProposal | None:
    """Return the proposal for a group, or None if it has changed meanwhile."""
    with store.reading():
        kept = _note(store, newest)
        older = [(read, likeness) for document, likeness in others if (read := _note(store, document))]
    if kept is None or not older:
        return None
    row, note, fields = kept
    room = max(0, MAX_RELATIONS - len(note.relations))
    older = older[:room]
    notes_of = [other for (_, other, _), _ in older]
    # A note without importance does not change that of another one.
    stated = [other.importance for (_, other, own), _ in older if own.get("importance") is not None]
    tags = _unite(note.tags, (other.tags for other in notes_of), MAX_TAGS)
    keywords = _unite(note.keywords, (other.keywords for other in notes_of), MAX_KEYWORDS)
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


def _unite(own: tuple[str, ...], others: Iterable[tuple[str, ...]], most: int) -> tuple[str, ...]:
    """Return all words without case-insensitive repetitions, the newest note's first."""
    found = {word.casefold(): word for word in reversed(own)}
    kept = dict(reversed(found.items()))
    for words in others:
        for word in words:
            kept.setdefault(word.casefold(), word)
    return own if len(kept) == len(own) else tuple(kept.values())[: max(most, len(own))]


def groups(notes: Sequence[NoteFingerprint], threshold: float) -> Iterator[list[DuplicateGroup]]:
    """Yield the groups of near-duplicates among the notes, which must be sorted newest first.
    Yields one list for each BLOCK of notes.
    """
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
                alike = likeness(notes[place], notes[other], threshold)
                if alike and have_same_numbers(notes[place], notes[other]):
                    others.append((other, alike))
            if others:
                taken[[place, *(other for other, _ in others)]] = True
                found.append(DuplicateGroup(place, tuple(others)))
        yield found


def _centres(notes: Sequence[NoteFingerprint]) -> Vectors:
    """Return the centre of each note as a row; zero without vectors, so that it is near to no
    other.
    """
    rows = [note.centre for note in notes]
    dimensions = next((len(row) for row in rows if row is not None), 1)
    centres = np.zeros((len(notes), dimensions), dtype=np.float32)
    for centre, row in zip(centres, rows, strict=True):
        if row is not None:
            centre[:] = row
    return centres


class _Sharing:
    """An index of notes that may have nearly the same words, by their rarest ones.

    Of two sets with a Jaccard index of j each must hold one of the (1 - j) |set| + 1 rarest words
    of the other (prefix filtering: Bayardo, Ma and Srikant, "Scaling up all pairs similarity
    search", WWW 2007), so that few notes are compared at all.
    """

    def __init__(self, sets: Sequence[frozenset[str]], threshold: float) -> None:
        counts = Counter(word for words in sets for word in words)
        # A changed word is missing from the intersection and added to the union: similarity by
        # letters and by words agree about this well.
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
        """Return the notes that share a rare word with this one."""
        holders = [self._holders[word] for word in self._rarest[place]]
        return {other for held in holders if len(held) <= MOST_SHARING for other in held}
