"""How much two notes say the same: by the vectors of their first pieces, and by their words.

Both measures are 0 to 1 and go both ways, so that a note is no duplicate of one that says the same and much more. Of a note that was just
written, the near ones are sought among those that its place and the global one have. No model is known here: vectors are given, or stored.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from confide_crypto.sealing.placeholder import STANDIN, only
from confide_daemon.embedding import Vectors
from confide_daemon.embedding.embedder import is_blank
from confide_daemon.embedding.local.wordpiece import is_mostly_latin
from confide_daemon.retrieval.search.scoring import PACKAGED_MODEL
from confide_daemon.store.rows import Filter, NotePiece, NoteRow
from confide_daemon.store.space_store import Store
from confide_memory.documents import STOP_WORDS
from confide_memory.mentions import folded
from confide_memory.tools.question import keyword_query

# What of a long note is compared: 8 pieces by meaning (some 300 words), 64 by words.
FIRST = 8
FIRST_WORDS = 64
# Of two notes that are longer than what is compared, how much shorter one may be.
LEAST_LENGTH = 0.8
# Pieces that are looked at by meaning and by words, and notes that are told of.
CANDIDATES = 64
SHARING = 24
MOST_TOLD = 5
# The longest words of a note are looked for: those with nearly the same words have nearly all of them, and few others do.
MOST_WORDS = 6
ENOUGH_SEEN = 8


@dataclass(frozen=True, slots=True)
class NoteNames:
    """What a note is called and what it is about, folded, and the signs in its text that are neither letters nor known to most models."""

    title: str = ""
    entity: str = ""
    signs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class NoteFingerprint:
    """What of a note is compared.

    Attributes:
        vectors: unit rows of its first pieces; None where one of them has no vector.
        weights: tokens of these pieces.
        words: all its words in lower case and in order of the alphabet.
        tokens: of all pieces looked at.
        is_long: it has more than is compared by meaning.
        sealed: what stands in for its text, where all of that was sealed: nobody here knows what it says.
        names: what it is called, and what it is about.
    """

    vectors: Vectors | None
    weights: Vectors
    words: str
    tokens: int
    is_long: bool = False
    sealed: tuple[str, ...] = ()
    names: NoteNames = NoteNames()

    @property
    def centre(self) -> Vectors | None:
        """The mean of its vectors, of unit length: notes that are near have centres that are about as near."""
        if self.vectors is None:
            return None
        mean = self.weights @ self.vectors
        length = np.linalg.norm(mean)
        return np.asarray(mean / length, dtype=np.float32) if length > 0 else None


def compared(
    pieces: Sequence[NotePiece], vectors: Mapping[int, Vectors], row: NoteRow | None = None
) -> NoteFingerprint:
    """What is compared of a note with these first pieces (FIRST_WORDS at most), in order, and the vectors they have."""
    first = pieces[:FIRST]
    rows = [vectors[piece.id] for piece in first if piece.id in vectors]
    text = " ".join(piece.text for piece in pieces)
    return NoteFingerprint(
        np.stack(rows) if rows and len(rows) == len(first) else None,
        np.array([max(1, piece.tokens) for piece in first], dtype=np.float32),
        sorted_words(text),
        sum(piece.tokens for piece in pieces),
        len(pieces) > FIRST,
        tuple(STANDIN.findall(text)) if only(text) else (),
        NoteNames(folded(row.title if row else ""), folded((row and row.entity) or ""), _signs(text)),
    )


def _signs(text: str) -> frozenset[str]:
    """Emoji and the like: which of them it is, is all that two texts may differ in, and neither words nor vectors tell."""
    if text.isascii():
        return frozenset()
    return frozenset(sign for sign in text if not sign.isascii() and unicodedata.category(sign) == "So")


def sorted_words(text: str) -> str:
    """Its words as they are compared: in lower case, in order, so that where they stand does not matter."""
    return " ".join(sorted(re.findall(r"\w+", text.lower())))


def by_meaning(one: NoteFingerprint, other: NoteFingerprint) -> float:
    """The mean of each piece's best cosine in the other note, weighted by length, of both sides the lower one; 0 without vectors."""
    if one.vectors is None or other.vectors is None or not _alike_in_length(one, other):
        return 0.0
    cosines = one.vectors @ other.vectors.T
    there = float(one.weights @ cosines.max(axis=1)) / float(one.weights.sum())
    back = float(other.weights @ cosines.max(axis=0)) / float(other.weights.sum())
    return max(0.0, min(1.0, there, back))


def by_words(one: NoteFingerprint, other: NoteFingerprint, least: float) -> float:
    """RapidFuzz's `token_sort_ratio`: of all letters, the words in order, the share that both have in the same order; 0 below `least`."""
    if not one.words or not other.words or not _alike_in_length(one, other):
        return 0.0
    from rapidfuzz import fuzz  # late: 3 MB, for who stores notes that are alike

    return fuzz.ratio(one.words, other.words, score_cutoff=100 * least) / 100


def _alike_in_length(one: NoteFingerprint, other: NoteFingerprint) -> bool:
    if not (one.is_long or other.is_long):
        return True  # all of both is compared, which tells it better
    return min(one.tokens, other.tokens) >= LEAST_LENGTH * max(one.tokens, other.tokens)


@dataclass(frozen=True, slots=True)
class Likeness:
    """How near two notes are, and what says so: `embedding` or `text`."""

    value: float
    by: str = field(default="embedding")


def likeness(one: NoteFingerprint, other: NoteFingerprint, least: float) -> Likeness | None:
    """The higher of both measures, if it is `least` or more.

    None of two that were sealed and are not the same, and of two that their names tell apart.
    """
    if one.sealed != other.sealed or _are_apart(one, other):
        return None
    meaning, words = by_meaning(one, other), by_words(one, other, least)
    best = Likeness(words, "text") if words > meaning else Likeness(meaning)
    # A cosine of equal vectors is 1 but for the rounding.
    return best if best.value >= least - 1e-6 else None


def _are_apart(one: NoteFingerprint, other: NoteFingerprint) -> bool:
    """Whether two notes are about different things though their texts are alike, as one port of two services."""
    if one.names.signs != other.names.signs:
        return True
    if one.names.entity and other.names.entity and one.names.entity != other.names.entity:
        return True
    # Of texts that say the same in other words the titles do so too; of one text title and entity are all there is.
    return one.words == other.words and one.names != other.names


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


def first_look(
    store: Store, row: NoteRow, projects: frozenset[str], words: Sequence[str], *, is_limited: bool = False
) -> FirstLook:
    """What is to be seen of the note without its vectors, in these projects; `words`, folded, may be tags.

    `is_limited`: nothing that lies elsewhere has a part in it, as whoever stores may not reach it.
    """
    with store.reading():
        texts = [piece.text for piece in store.notes.first_pieces([row.document], first=FIRST)]
        documents = _by_words(store, " ".join(texts), projects, is_limited=is_limited) - {row.document}
        tags = store.notes.tags_among(words, projects)
        is_only = not documents and store.notes.count(projects, most=2) < 2
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
    *,
    is_limited: bool = False,
) -> list[Near]:
    """The notes of these projects that are as near as `least`, the nearest first; MOST_TOLD at most.

    Args:
        apart: ids of notes that are left out, as are those that another one supersedes.
        generation, vectors: those of the note's first pieces, by their hashes; None: it has none yet.
        is_limited: as in `first_look`.
    """
    with store.reading():
        if all(one.id != generation for one in store.vectors.generations()):
            generation = None  # dropped meanwhile
        pieces = store.notes.first_pieces([row.document], first=FIRST_WORDS)
        known = {digest: vector for digest, vector in vectors.items() if not is_blank(vector)}
        own = compared(pieces, {piece.id: known[piece.hash] for piece in pieces if piece.hash in known}, row)
        documents = set(first.documents)
        if generation is not None and own.vectors is not None:
            nearby = _by_meaning(store, generation, own.vectors, projects, least, is_limited=is_limited)
            documents |= nearby - {row.document}
        documents -= store.notes.superseded(list(documents), projects)
        near = []
        for other, seen in read_compared(store, generation, documents).items():
            found = likeness(own, seen, least)
            note = store.notes.of_document(other) if found else None
            if found and note and _is_seen(note, row, projects) and note.id not in apart:
                near.append(Near(note, found))
    near.sort(key=lambda one: (-one.likeness.value, -one.row.updated_at, one.row.id))
    return near[:MOST_TOLD]


def _is_seen(note: NoteRow, row: NoteRow, projects: frozenset[str]) -> bool:
    """Whether it lies in these projects, and is of no task, or of the same one."""
    return note.project in projects and (
        note.task_id is None or (note.task_id, note.project) == (row.task_id, row.project)
    )


def read_compared(store: Store, generation: int | None, documents: Collection[int]) -> dict[int, NoteFingerprint]:
    """What is compared of these notes, by document; without vectors where there is no generation. Within a view of the store."""
    by_document: defaultdict[int, list[NotePiece]] = defaultdict(list)
    for piece in store.notes.first_pieces(sorted(documents), first=FIRST_WORDS):
        by_document[piece.document].append(piece)
    first = [piece for pieces in by_document.values() for piece in pieces[:FIRST]]
    if any(one.id == generation and one.model == PACKAGED_MODEL for one in store.vectors.generations()):
        # Of texts that it does not understand it gives none by now, but older ones are still there.
        first = [piece for piece in first if is_mostly_latin(piece.text)]
    ids = [piece.id for piece in first]
    vectors = store.vectors.of_pieces(generation, ids) if generation is not None else {}
    rows = store.notes.of_documents(list(by_document))
    return {document: compared(pieces, vectors, rows.get(document)) for document, pieces in by_document.items()}


# To say which documents may be seen takes longer than to look at all, which is good enough for who may see all: nothing that is left out
# tells them anything. For others it is said first. Among many near ones those of elsewhere would push out some of theirs, and so show.


def _by_meaning(
    store: Store, generation: int, vectors: Vectors, projects: frozenset[str], least: float, *, is_limited: bool
) -> set[int]:
    """The documents with a piece that is near one of these: at least one of a duplicate's is."""
    found: set[int] = set()
    for vector in vectors:
        allowed = _among(projects) if is_limited else Filter()
        nearest = store.vectors.nearest(generation, vector, allowed, limit=CANDIDATES)
        if not is_limited and len(nearest) == CANDIDATES and nearest[-1][1] >= least:
            nearest = store.vectors.nearest(generation, vector, _among(projects), limit=CANDIDATES)
        found |= _documents(store, [piece for piece, cosine in nearest if cosine >= least - 1e-3], projects)
    return found


def _by_words(store: Store, text: str, projects: frozenset[str], *, is_limited: bool) -> set[int]:
    """The documents that have most of the note's longest words."""
    words = dict.fromkeys(word for word in text.split() if word.lower().strip(".,:;!?()") not in STOP_WORDS)
    match = keyword_query(" ".join(sorted(words, key=lambda word: -len(word))[:MOST_WORDS]))
    allowed = _among(projects) if is_limited else Filter()
    best = store.keywords.candidates(match, allowed, limit=SHARING, is_limited=is_limited)
    found = _documents(store, [piece for piece, _ in best], projects)
    if not is_limited and len(best) == SHARING and len(found) < ENOUGH_SEEN:
        best = store.keywords.candidates(match, _among(projects), limit=SHARING)
        found = _documents(store, [piece for piece, _ in best], projects)
    return found


def _among(projects: frozenset[str]) -> Filter:
    return Filter(projects=projects, sources=frozenset({"memory"}))


def _documents(store: Store, pieces: Sequence[int], projects: frozenset[str]) -> set[int]:
    return {place.document for place in store.pieces.places(pieces) if place.project in projects}
