"""Sorts chunks by relevance: combines the keyword search and the vector search on one scale, adds
votes of neighbours and factors for a whole chunk, and moves notes before those that they supersede.

    relevance = 0.32 * (cosine - floor) / (best cosine - floor) + 0.68 * bm25 / best bm25

The cosine is exact for every candidate, even if only the keyword search found it. The floor is the
last cosine of the vector search. Each search is taken relative to its own best result. This makes
the two comparable for every model, and is worth four points of recall within 500 tokens in a large
space over absolute values (bench/quality.py). Neighbours in the document add a share of their
relevance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from confide_daemon.store.rows import PiecePlace, Supersession
from confide_daemon.store.space_store import Store
from confide_memory.tools.question import SATURATION

RANKINGS = ("confide", "original")
NEUTRAL_IMPORTANCE = 0.5  # of documents that state none
SHORT = 4  # most chunks of a note that counts as a paragraph among others
LEAST_SPREAD = 0.1  # of cosines: a smaller spread separates nothing
# Most notes that a hit names as superseding it, the newest first; `memory_get` names all.
MOST_TOLD = 5


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of the two searches and of the factors. The defaults are those that were best in
    measurements (bench/quality.py).
    """

    vector: float = 0.32
    keyword: float = 0.68
    # "original" is the first formula: 0.7 * cosine + 0.3 / (1 + keyword rank), without votes.
    ranking: str = "confide"
    # The share of its relevance that a chunk one, two, three or four places away adds.
    votes: tuple[float, ...] = (0.175, 0.14, 0.105, 0.07)
    # Short notes vote for each other only by the part of their relevance above this quantile of the
    # candidates: they are neighbours by time alone, and in a small space all of them are
    # candidates.
    notes_above: float = 0.85
    # For a name or a quoted phrase that the chunk contains exactly; times its share of the query.
    exact: float = 1.0
    # A chunk of the days that the query names ("last week") gains this share of its rank.
    dated: float = 0.5
    # For transcripts, if both sources are searched: notes come before talk. Many lines of talk
    # about one thing vote for each other, up to twice their score, and a note has no such
    # neighbours.
    sessions: float = 0.6
    candidates: int = 128  # of each leg
    compared: int = 160  # the best by relevance of both legs
    joined: int = 3  # most chunks in a row that form one hit
    half_life_days: float = 30.0  # of recency
    usage_full: int = 100  # reads and showings that make a usage of 1; ten make half of it
    # rank "balanced", as tools.md "Scores"
    balanced_score: float = 0.4
    balanced_recency: float = 0.2
    balanced_importance: float = 0.2
    balanced_usage: float = 0.2
    balanced_project: float = 0.1


ORIGINAL = Weights(vector=0.7, keyword=0.3, ranking="original", votes=(), exact=0.0)


@dataclass(frozen=True, slots=True)
class Legs:
    """The results of the keyword search and of the vector search, as scores by chunk id, best
    first. `cosines` also contains the chunks that only the keyword search found.
    """

    keyword: Mapping[int, float]
    vector: Sequence[int] = ()
    cosines: Mapping[int, float] | None = None  # None: no model
    exact: Mapping[int, float] | None = None

    @property
    def pieces(self) -> list[int]:
        return sorted({*self.keyword, *(self.cosines or ())})


def relevance(legs: Legs, weights: Weights) -> dict[int, float]:
    """Return the relevance of each chunk, from 0 to 1, relative to the best result of each search.
    A chunk without a vector is judged by its words alone.
    """
    if weights.ranking == "original":
        return _original(legs, weights)
    best = max(max(legs.keyword.values(), default=0.0), SATURATION)
    cosines = legs.cosines or {}
    top = max(cosines.values(), default=0.0)
    floor = cosines[legs.vector[-1]] if legs.vector else 0.0
    spread = max(top - floor, LEAST_SPREAD)
    both = weights.vector + weights.keyword
    if not both:
        return dict.fromkeys(legs.pieces, 0.0)
    found = {}
    for piece in legs.pieces:
        score, cosine = legs.keyword.get(piece, 0.0), cosines.get(piece)
        words = score / best if score > 0.0 else 0.0
        meaning = words if cosine is None else (cosine - floor) / spread if cosine > floor else 0.0
        found[piece] = (weights.vector * meaning + weights.keyword * words) / both
    return found


def _original(legs: Legs, weights: Weights) -> dict[int, float]:
    cosines = legs.cosines or {}
    found = {piece: weights.vector * max(0.0, cosines.get(piece, 0.0)) for piece in legs.pieces}
    for rank, piece in enumerate(legs.keyword):
        found[piece] += weights.keyword / (1 + rank)
    return found


def best_first(scores: Mapping[int, float]) -> list[int]:
    """Return the chunk ids by decreasing score, and those with equal scores by increasing id."""
    return sorted(sorted(scores), key=scores.__getitem__, reverse=True)


def votes(scores: Mapping[int, float], places: Mapping[int, PiecePlace], weights: Weights) -> dict[int, float]:
    """Return how much each chunk gains from its neighbours in the document: a chunk among good
    chunks is likely right.

    If a note is short, the short notes of the same project and day that were stored just before and
    after it are neighbours too (chunk ids increase with time). These give votes only if they are
    among the good ones.
    """
    ordered = sorted(scores[piece] for piece in places)
    floor = ordered[min(len(ordered) - 1, int(len(ordered) * weights.notes_above))] if ordered else 0.0
    found = dict.fromkeys(places, 0.0)
    reach = len(weights.votes)
    documents: dict[int, list[tuple[int, int]]] = {}
    for piece, place in places.items():
        documents.setdefault(place.document, []).append((place.position, piece))
    for beside in documents.values():
        beside.sort()
        for at, (position, piece) in enumerate(beside):
            for after, other in beside[at + 1 : at + 1 + reach]:
                if after - position > reach:
                    break
                weight = weights.votes[after - position - 1]
                found[piece] += weight * scores[other]
                found[other] += weight * scores[piece]
    # From the good ones to their neighbours: most candidates are no good ones, and give nothing.
    good = [(piece, place) for piece, place in places.items() if scores[piece] > floor and _is_short(place)]
    steps = [(step * sign, weight) for step, weight in enumerate(weights.votes, 1) for sign in (-1, 1)]
    for step, weight in steps:
        for piece, place in good:
            beside_it = places.get(piece - step)
            if beside_it is not None and _were_stored_together(beside_it, place):
                found[piece - step] += weight * (scores[piece] - floor)
    return found


def _is_short(place: PiecePlace) -> bool:
    return place.pieces is not None and place.pieces <= SHORT


def _were_stored_together(one: PiecePlace, other: PiecePlace) -> bool:
    """Return True if both are of the same project and day, of two documents; `other` is a short
    note.
    """
    same = one.day == other.day and one.project == other.project
    return same and one.document != other.document and _is_short(one)


def recency_of(day: str, today: str, weights: Weights) -> float:
    """Return the recency factor of a day: 1 for today, and one half after the half-life of
    `weights`.
    """
    age = (datetime.fromisoformat(today) - datetime.fromisoformat(day)).days
    return float(0.5 ** (max(0, age) / weights.half_life_days))


def usage_of(uses: int, weights: Weights) -> float:
    """Return the usage factor of a document: 0 if it was never read, and 1 from `usage_full` reads
    on, logarithmic in between.
    """
    return min(1.0, math.log1p(uses) / math.log1p(weights.usage_full))


def balance(
    score: float, *, recency: float, importance: float, usage: float, is_own_project: bool, weights: Weights
) -> float:
    """Return the value by which rank "balanced" sorts a hit. All factors are from 0 to 1."""
    return (
        weights.balanced_score * score
        + weights.balanced_recency * recency
        + weights.balanced_importance * importance
        + weights.balanced_usage * usage
        + weights.balanced_project * is_own_project
    )


class NoteSuccession:
    """The graph of notes that supersede each other, from the found notes to the newest ones. Its
    nodes are document ids.
    """

    def __init__(self, links: Sequence[Supersession]) -> None:
        self._newer: dict[int, list[Supersession]] = {}
        for link in links:
            self._newer.setdefault(link.older, []).append(link)
        # Notes in a cycle supersede nothing within it; each cycle is one node, and newer nodes come
        # first.
        self._circles = _circles({older: [link.newer for link in newer] for older, newer in self._newer.items()})
        self._circle_of = {document: number for number, circle in enumerate(self._circles) for document in circle}

    @classmethod
    def of(
        cls,
        store: Store,
        documents: Sequence[int],
        projects: frozenset[str] | None,
        classes: frozenset[str] | None = None,
    ) -> NoteSuccession:
        """Read the graph from the store, from these documents on. It is limited to notes of these
        projects and trust classes (None for all).
        """
        return cls(store.notes.supersession_chains(documents, projects, classes))

    def __bool__(self) -> bool:
        return bool(self._newer)

    def by(self, document: int) -> tuple[Supersession, ...]:
        """Return the notes that state that they supersede the document, at most MOST_TOLD."""
        return tuple(self._newer.get(document, ())[:MOST_TOLD])

    def above(self, document: int) -> list[int]:
        """Return all documents that supersede this one, directly or through others, the nearest
        first.
        """
        own = self._circle_of.get(document)
        return [newer for newer in self._all_newer(document) if self._circle_of[newer] != own]

    def ahead_of(self, documents: Sequence[int]) -> list[int]:
        """Return all documents that supersede any of these and are not themselves among these."""
        present = set(documents)
        return list(dict.fromkeys(newer for one in documents for newer in self.above(one) if newer not in present))

    def newest(self, documents: Sequence[int], beside: Sequence[int]) -> list[int]:
        """Return those of `documents` that are superseded by no other one of them and by none of
        `beside`.
        """
        present = {*documents, *beside}
        # Newer cycles come first, so each is known before those below it.
        is_below: list[bool] = []
        for number, circle in enumerate(self._circles):
            others = {self._circle_of[link.newer] for one in circle for link in self._newer.get(one, ())} - {number}
            is_below.append(any(is_below[other] or not present.isdisjoint(self._circles[other]) for other in others))
        return [one for one in documents if one not in self._circle_of or not is_below[self._circle_of[one]]]

    def arrange(self, documents: Sequence[int]) -> list[int]:
        """Return the indexes of `documents` (which may repeat) in an order in which superseding
        documents come directly before the one that they supersede. Otherwise the order is kept.
        """
        ordered: dict[int, None] = {}

        def place_after_newer(place: int) -> None:
            if place in ordered:
                return
            newer = set(self.above(documents[place]))
            # A superseding document has fewer documents above it, so this ends.
            for other, document in enumerate(documents):
                if document in newer:
                    place_after_newer(other)
            ordered[place] = None

        for place in range(len(documents)):
            place_after_newer(place)
        return list(ordered)

    def _all_newer(self, document: int) -> list[int]:
        found: dict[int, None] = {}
        ahead = [document]
        while ahead:
            nearest = dict.fromkeys(link.newer for one in ahead for link in self._newer.get(one, ()))
            ahead = [one for one in nearest if one not in found]
            found.update(dict.fromkeys(ahead))
        return list(found)


def _circles(newer: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """Return the strongly connected components of a graph, each after those that it leads to
    (Tarjan, SIAM J. Comput. 1 (2), 1972).
    """
    found: list[list[int]] = []
    order: dict[int, int] = {}
    lowest: dict[int, int] = {}
    waiting: dict[int, None] = {}
    for start in newer:
        if start in order:
            continue
        order[start] = lowest[start] = len(order)
        waiting[start] = None
        path = [(start, iter(newer[start]))]
        while path:
            at, ahead = path[-1]
            following = next(ahead, None)
            if following is None:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[at])
                if lowest[at] == order[at]:
                    circle: list[int] = []
                    while not circle or circle[-1] != at:
                        circle.append(waiting.popitem()[0])
                    found.append(circle)
            elif following not in order:
                order[following] = lowest[following] = len(order)
                waiting[following] = None
                path.append((following, iter(newer.get(following, ()))))
            elif following in waiting:
                lowest[at] = min(lowest[at], order[following])
    return found
