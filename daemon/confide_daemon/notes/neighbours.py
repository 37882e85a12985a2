"""The notes near one that was just written, among those that its place and the global one have: what says the same, and how much.

It reads one view of a store after the other, and knows no model: the vectors of the note are given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from confide_daemon.embed import Vectors
from confide_daemon.notes.similarity import FIRST, FIRST_WORDS, Compared, Likeness, compared, likeness
from confide_daemon.searching.words import STOP_WORDS, keyword_query
from confide_daemon.store import Filter, NotePiece, NoteRow, Store

# Pieces that are looked at by meaning and by words, and notes that are told of.
CANDIDATES = 64
SHARING = 24
MOST_TOLD = 5
# The longest words of a note are looked for: those with nearly the same words have nearly all of them, and few others do.
MOST_WORDS = 6
ENOUGH_SEEN = 8


@dataclass(frozen=True, slots=True)
class Near:
    """A note that says nearly the same."""

    row: NoteRow
    likeness: Likeness


@dataclass(frozen=True, slots=True)
class FirstLook:
    """What is seen without vectors: documents with the note's longest words, and the tags in it. `is_only`: there is no other note."""

    documents: frozenset[int]
    tags: tuple[str, ...]
    is_only: bool


def first_look(store: Store, row: NoteRow, projects: frozenset[str], words: Sequence[str]) -> FirstLook:
    """What is to be seen of the note without its vectors, in these projects; `words`, folded, may be tags."""
    with store.reading():
        texts = [piece.text for piece in store.note_pieces([row.document], first=FIRST)]
        documents = _by_words(store, " ".join(texts), projects) - {row.document}
        tags = store.tags_among(words, projects)
        is_only = not documents and store.note_count(projects, most=2) < 2
    return FirstLook(frozenset(documents), tuple(tags), is_only)


def find_near(
    store: Store,
    row: NoteRow,
    first: FirstLook,
    projects: frozenset[str],
    apart: frozenset[str],
    generation: int | None,
    vectors: Mapping[bytes, Vectors],
    least: float,
) -> list[Near]:
    """The notes of these projects that are as near as `least`, the nearest first; MOST_TOLD at most.

    Args:
        apart: ids of notes that are left out, as are those that another one supersedes.
        generation, vectors: those of the note's first pieces, by their hashes; None: it has none yet.
    """
    with store.reading():
        if all(one.id != generation for one in store.generations()):
            generation = None  # dropped meanwhile
        pieces = store.note_pieces([row.document], first=FIRST_WORDS)
        own = compared(pieces, {piece.id: vectors[piece.hash] for piece in pieces if piece.hash in vectors})
        documents = set(first.documents)
        if generation is not None and own.vectors is not None:
            documents |= _by_meaning(store, generation, own.vectors, projects, least) - {row.document}
        documents -= store.superseded(list(documents), projects)
        near = []
        for other, seen in read_compared(store, generation, documents).items():
            found = likeness(own, seen, least)
            note = store.note_of(other) if found else None
            if found and note and _is_seen(note, row, projects) and note.id not in apart:
                near.append(Near(note, found))
    near.sort(key=lambda one: (-one.likeness.value, -one.row.updated_at, one.row.id))
    return near[:MOST_TOLD]


def _is_seen(note: NoteRow, row: NoteRow, projects: frozenset[str]) -> bool:
    """Whether it lies in these projects, and is of no task, or of the same one."""
    return note.project in projects and (
        note.task_id is None or (note.task_id, note.project) == (row.task_id, row.project)
    )


def read_compared(store: Store, generation: int | None, documents: Collection[int]) -> dict[int, Compared]:
    """What is compared of these notes, by document; without vectors where there is no generation. Within a view of the store."""
    by_document: defaultdict[int, list[NotePiece]] = defaultdict(list)
    for piece in store.note_pieces(sorted(documents), first=FIRST_WORDS):
        by_document[piece.document].append(piece)
    ids = [piece.id for pieces in by_document.values() for piece in pieces[:FIRST]]
    vectors = store.vectors(generation, ids) if generation is not None else {}
    return {document: compared(pieces, vectors) for document, pieces in by_document.items()}


def _by_meaning(store: Store, generation: int, vectors: Vectors, projects: frozenset[str], least: float) -> set[int]:
    """The documents with a piece that is near one of these: at least one of a duplicate's is."""
    found: set[int] = set()
    for vector in vectors:
        nearest = store.vector_candidates(generation, vector, Filter(), limit=CANDIDATES)
        if len(nearest) == CANDIDATES and nearest[-1][1] >= least:
            # To say which documents may be seen takes longer than to look at all; it matters where so many are near.
            some = Filter(projects=projects, sources=frozenset({"memory"}))
            nearest = store.vector_candidates(generation, vector, some, limit=CANDIDATES)
        found |= _documents(store, [piece for piece, cosine in nearest if cosine >= least - 1e-3], projects)
    return found


def _by_words(store: Store, text: str, projects: frozenset[str]) -> set[int]:
    """The documents that have most of the note's longest words."""
    words = dict.fromkeys(word for word in text.split() if word.lower().strip(".,:;!?()") not in STOP_WORDS)
    match = keyword_query(" ".join(sorted(words, key=lambda word: -len(word))[:MOST_WORDS]))
    best = store.keyword_candidates(match, Filter(), limit=SHARING)
    found = _documents(store, [piece for piece, _ in best], projects)
    if len(best) == SHARING and len(found) < ENOUGH_SEEN:
        some = Filter(projects=projects, sources=frozenset({"memory"}))
        best = store.keyword_candidates(match, some, limit=SHARING)
        found = _documents(store, [piece for piece, _ in best], projects)
    return found


def _documents(store: Store, pieces: Sequence[int], projects: frozenset[str]) -> set[int]:
    return {place.document for place in store.places(pieces) if place.project in projects}
