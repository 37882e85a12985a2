"""Measures the similarity of two notes, by the vectors of their first chunks and by their words.

Both measures are from 0 to 1 and symmetric, so a note is no duplicate of one that says the same and
much more. Notes similar to one that was just written are searched in its own project and the global
one. This module calls no model: the vectors are stored, or passed in.
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
from confide_memory.mentions import fold_name
from confide_memory.tools.question import keyword_query

# The first chunks of a note that are compared: 8 by meaning (some 300 words), 64 by words.
FIRST = 8
FIRST_WORDS = 64
# The least ratio of lengths of two notes that are too long to be compared as a whole.
LEAST_LENGTH = 0.8
# Chunks that are examined by meaning and by words, and the most notes that are reported.
CANDIDATES = 64
SHARING = 24
MOST_TOLD = 5
# The number of longest words to search for: notes with nearly the same words have nearly all of
# them, and few others do.
MOST_WORDS = 6
ENOUGH_SEEN = 8
_DIGIT = re.compile(r"\d")


@dataclass(frozen=True, slots=True)
class NoteNames:
    """The case-folded title and entity of a note, and the symbols in its text, such as emoji, that
    most models do not know.
    """

    title: str = ""
    entity: str = ""
    signs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class NoteFingerprint:
    """The data by which a note is compared with others.

    Attributes:
        vectors: the vectors of its first chunks, of unit length; None if one of them is missing.
        weights: the numbers of tokens of these chunks.
        words: all its words in lower case, sorted.
        tokens: the number of tokens of all chunks that were read.
        is_long: True if the note is longer than the part whose vectors are compared.
        sealed_values: the placeholders in its text, if the whole text is sealed (encrypted so that
            the server cannot read it).
        names: its title and entity.
    """

    vectors: Vectors | None
    weights: Vectors
    words: str
    tokens: int
    is_long: bool = False
    sealed_values: tuple[str, ...] = ()
    names: NoteNames = NoteNames()

    @property
    def centre(self) -> Vectors | None:
        """The mean of the note's vectors, scaled to unit length; None if a vector is missing.
        Similar notes have similar means.
        """
        if self.vectors is None:
            return None
        mean = self.weights @ self.vectors
        length = np.linalg.norm(mean)
        return np.asarray(mean / length, dtype=np.float32) if length > 0 else None


def fingerprint_of(
    pieces: Sequence[NotePiece], vectors: Mapping[int, Vectors], row: NoteRow | None = None
) -> NoteFingerprint:
    """Build the fingerprint of a note from its chunks, in order, and the vectors of the first ones."""
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
        NoteNames(fold_name(row.title if row else ""), fold_name((row and row.entity) or ""), _signs(text)),
    )


def _signs(text: str) -> frozenset[str]:
    """Return the emoji and similar symbols of a text: two texts may differ in them alone, which
    words and vectors do not show.
    """
    if text.isascii():
        return frozenset()
    return frozenset(sign for sign in text if not sign.isascii() and unicodedata.category(sign) == "So")


def sorted_words(text: str) -> str:
    """Return the words of a text in lower case and sorted, so that their order in the text does not
    matter.
    """
    return " ".join(sorted(re.findall(r"\w+", text.lower())))


def by_meaning(one: NoteFingerprint, other: NoteFingerprint) -> float:
    """Return the similarity of two notes by their vectors, from 0 to 1. It is the mean of each
    chunk's best cosine in the other note, weighted by length, in the direction that gives less. It
    is 0 without vectors.
    """
    if one.vectors is None or other.vectors is None or not _alike_in_length(one, other):
        return 0.0
    cosines = one.vectors @ other.vectors.T
    there = float(one.weights @ cosines.max(axis=1)) / float(one.weights.sum())
    back = float(other.weights @ cosines.max(axis=0)) / float(other.weights.sum())
    return max(0.0, min(1.0, there, back))


def by_words(one: NoteFingerprint, other: NoteFingerprint, least: float) -> float:
    """Return the similarity of two notes by their words, from 0 to 1. It is the share of letters
    that both sorted word lists have in the same order (RapidFuzz's `token_sort_ratio`), or 0 if it
    is below `least`.
    """
    if not one.words or not other.words or not _alike_in_length(one, other):
        return 0.0
    from rapidfuzz import fuzz  # late: 3 MB, for who stores notes that are alike

    return fuzz.ratio(one.words, other.words, score_cutoff=100 * least) / 100


def _alike_in_length(one: NoteFingerprint, other: NoteFingerprint) -> bool:
    if not (one.is_long or other.is_long):
        return True  # both are compared as a whole
    return min(one.tokens, other.tokens) >= LEAST_LENGTH * max(one.tokens, other.tokens)


@dataclass(frozen=True, slots=True)
class Likeness:
    """The similarity of two notes, and the measure that gave it: `embedding` or `text`."""

    value: float
    by: str = field(default="embedding")


def likeness(one: NoteFingerprint, other: NoteFingerprint, least: float) -> Likeness | None:
    """Return the similarity of two notes, by the measure that gives more, or None if it is below
    `least`.

    Also None for two notes with different sealed texts, and for two notes whose names show that
    they are about different things.
    """
    if one.sealed_values != other.sealed_values or _are_apart(one, other):
        return None
    meaning, words = by_meaning(one, other), by_words(one, other, least)
    best = Likeness(words, "text") if words > meaning else Likeness(meaning)
    # The cosine of equal vectors is 1 up to rounding.
    return best if best.value >= least - 1e-6 else None


def _are_apart(one: NoteFingerprint, other: NoteFingerprint) -> bool:
    """Return True if two notes with similar texts are about different things, such as the same port
    of two services.
    """
    if one.names.signs != other.names.signs:
        return True
    if one.names.entity and other.names.entity and one.names.entity != other.names.entity:
        return True
    # Texts in other words have titles in other words, too; for identical texts, only title and
    # entity can differ.
    return one.words == other.words and one.names != other.names


def have_same_numbers(one: NoteFingerprint, other: NoteFingerprint) -> bool:
    """Return True if two notes contain the same numbers and words with digits. Notes on two tickets,
    invoices or releases may differ in nothing else, and both are needed.
    """
    mine, others = ({word for word in note.words.split() if _DIGIT.search(word)} for note in (one, other))
    return mine == others


@dataclass(frozen=True, slots=True)
class Near:
    """A note that is similar to another one, with its similarity."""

    row: NoteRow
    likeness: Likeness


@dataclass(frozen=True, slots=True)
class FirstLook:
    """The part of a duplicate check that needs no vectors: documents that contain the note's
    longest words, and tags in its text. `is_only` is True if there is no other note.
    """

    documents: frozenset[int]
    tags: tuple[str, ...]
    is_only: bool


def first_look(
    store: Store, row: NoteRow, projects: frozenset[str], words: Sequence[str], *, is_limited: bool = False
) -> FirstLook:
    """Find notes in these projects that share words with a note, as candidates for duplicates. Also
    find those of `words` (case-folded) that are existing tags.

    `is_limited`: True if the client may not access other projects. These then have no influence on
    the result.
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
    """Return the notes of these projects with a similarity of at least `least`, nearest first, at
    most MOST_TOLD.

    Args:
        apart: ids of notes to leave out; superseded notes are left out as well.
        generation: the id of the stored set of vectors to compare with; None if there is none.
        vectors: the vectors of the note's first chunks, by the hash of the chunk.
        is_limited: True if the client may not access other projects. These then have no influence
            on the result.
    """
    with store.reading():
        if all(one.id != generation for one in store.vectors.generations()):
            generation = None  # dropped meanwhile
        pieces = store.notes.first_pieces([row.document], first=FIRST_WORDS)
        known = {digest: vector for digest, vector in vectors.items() if not is_blank(vector)}
        own = fingerprint_of(pieces, {piece.id: known[piece.hash] for piece in pieces if piece.hash in known}, row)
        documents = set(first.documents)
        if generation is not None and own.vectors is not None:
            nearby = _by_meaning(store, generation, own.vectors, projects, least, is_limited=is_limited)
            documents |= nearby - {row.document}
        documents -= store.notes.find_superseded(list(documents), projects)
        near = []
        for other, seen in read_fingerprints(store, generation, documents).items():
            found = likeness(own, seen, least)
            note = store.notes.of_document(other) if found else None
            if found and note and _is_seen(note, row, projects) and note.id not in apart:
                near.append(Near(note, found))
    near.sort(key=lambda one: (-one.likeness.value, -one.row.updated_at, one.row.id))
    return near[:MOST_TOLD]


def _is_seen(note: NoteRow, row: NoteRow, projects: frozenset[str]) -> bool:
    """Return True if the note is in these projects, and in no task or in the same one."""
    return note.project in projects and (
        note.task_id is None or (note.task_id, note.project) == (row.task_id, row.project)
    )


def read_fingerprints(store: Store, generation: int | None, documents: Collection[int]) -> dict[int, NoteFingerprint]:
    """Return the fingerprints of the notes in these documents, by document. Without a `generation`
    (the id of a set of vectors) they have no vectors. Call within a snapshot of the store.
    """
    by_document: defaultdict[int, list[NotePiece]] = defaultdict(list)
    for piece in store.notes.first_pieces(sorted(documents), first=FIRST_WORDS):
        by_document[piece.document].append(piece)
    first = [piece for pieces in by_document.values() for piece in pieces[:FIRST]]
    if any(one.id == generation and one.model == PACKAGED_MODEL for one in store.vectors.generations()):
        # The model no longer returns vectors for scripts that it does not know, but older ones are
        # still stored.
        first = [piece for piece in first if is_mostly_latin(piece.text)]
    ids = [piece.id for piece in first]
    vectors = store.vectors.of_pieces(generation, ids) if generation is not None else {}
    rows = store.notes.of_documents(list(by_document))
    return {document: fingerprint_of(pieces, vectors, rows.get(document)) for document, pieces in by_document.items()}


# Filtering by document takes longer than searching all. For a caller that may read all projects,
# results are filtered afterwards. For others the filter comes first: among many near notes, those
# of other projects would push out some of theirs, and thereby reveal themselves.


def _by_meaning(
    store: Store, generation: int, vectors: Vectors, projects: frozenset[str], least: float, *, is_limited: bool
) -> set[int]:
    """Return the documents with a chunk near one of these vectors; a duplicate has at least one."""
    found: set[int] = set()
    for vector in vectors:
        allowed = _among(projects) if is_limited else Filter()
        nearest = store.vectors.nearest(generation, vector, allowed, limit=CANDIDATES, least=least - 1e-3)
        if not is_limited and len(nearest) == CANDIDATES and nearest[-1][1] >= least:
            nearest = store.vectors.nearest(generation, vector, _among(projects), limit=CANDIDATES)
        found |= _documents(store, [piece for piece, cosine in nearest if cosine >= least - 1e-3], projects)
    return found


def _by_words(store: Store, text: str, projects: frozenset[str], *, is_limited: bool) -> set[int]:
    """Return the documents with most of the note's longest words."""
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
