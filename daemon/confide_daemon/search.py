"""Finds the right pieces: a keyword leg and a vector leg, one score, neighbours that vote, and as little text as will do.

    score = 0.4 * max(0, cosine) + 0.6 * bm25 / (bm25 + 8)         (retrieval.md 1.1)

with the true cosine for every candidate, also for those that only the keyword leg found. Pieces are ranked by their score plus
0.7 times the mean score of the two pieces before and after them in the document; the score that is shown and held against
`min_score` is the piece's own, and at least 0.6 times its cosine. It knows no threads and no files: a `Store` in, hits out.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise

from confide_daemon.embed.protocol import Vectors
from confide_daemon.store.protocol import Filter, Generation, HitRow, Place, Store
from confide_daemon.words import keyword_query

RANKS = ("relevance", "balanced", "importance", "recency")
NEUTRAL_IMPORTANCE = 0.5  # until notes carry their own


@dataclass(frozen=True, slots=True)
class Weights:
    """How legs and factors are weighed. The defaults are what was measured best (bench/quality.py)."""

    vector: float = 0.4
    keyword: float = 0.6
    saturation: float = 8.0  # the BM25 score that counts half
    # What the cosine alone is worth at least when a score is shown and held against `min_score`: a piece that says the same in other
    # words has no keyword score, and would need a cosine of 0.63 to pass 0.25. Ranking is better without it.
    vector_alone: float = 0.6
    neighbours: float = 0.7
    reach: int = 2  # pieces before and after that vote
    # Transcripts, where both sources are searched: what was only talked about stands behind what was noted. Many lines of talk about one
    # thing vote for each other, up to 1.7 times their score, and a note has no such neighbours.
    sessions: float = 0.6
    candidates: int = 192  # of each leg
    joined: int = 3  # pieces in a row that are made one hit at most
    half_life_days: float = 30.0  # of recency
    # rank "balanced", as tools.md "Scores"
    balanced_score: float = 0.4
    balanced_recency: float = 0.2
    balanced_importance: float = 0.2
    balanced_usage: float = 0.2
    balanced_project: float = 0.1


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What is asked for. `since` and `until` count by whole days, both included: documents are dated by the day."""

    text: str
    projects: frozenset[str] | None = None
    max_results: int = 8
    min_score: float = 0.25
    sources: frozenset[str] | None = None
    path: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    keywords: tuple[str, ...] = ()
    rank: str = "relevance"
    max_tokens: int | None = None
    project: str | None = None  # the asking project: its pieces gain in rank "balanced"


@dataclass(frozen=True, slots=True)
class Hit:
    """Some lines of a document, and why they were found. Scores are in 0 to 1, but `vector` is a cosine in -1 to 1."""

    path: str
    project: str
    start_line: int
    end_line: int
    score: float
    vector: float | None  # None: no vector yet, or no model
    keyword: float
    recency: float
    importance: float
    usage: float
    snippet: str
    heading: str
    source: str
    author: str
    updated_at: str  # ISO 8601, UTC


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The hits, and how they were found."""

    hits: list[Hit]
    mode: str  # hybrid, vector, keyword
    warnings: list[str]
    index_age_s: float  # how long the oldest piece has waited for its vector; 0 when none waits
    timings: dict[str, float] = field(default_factory=dict)  # milliseconds by step


@dataclass(frozen=True, slots=True)
class Candidate:
    """A piece with its scores. `rank` orders, `score` is shown."""

    place: Place
    score: float
    vector: float | None
    keyword: float
    recency: float
    rank: float


def fuse(
    keyword: Mapping[int, float], cosines: Mapping[int, float], weights: Weights, *, hybrid: bool
) -> dict[int, float]:
    """The score of each piece. Without a vector (no model, or not embedded yet) the keyword score stands alone, on the same scale."""
    scores = {}
    for piece in keyword.keys() | cosines.keys():
        saturated = saturate(keyword.get(piece, 0.0), weights)
        cosine = cosines.get(piece)
        if not hybrid or cosine is None:
            scores[piece] = saturated
        else:
            scores[piece] = weights.vector * max(0.0, cosine) + weights.keyword * saturated
    return scores


def saturate(bm25: float, weights: Weights) -> float:
    """BM25 brought into 0 to 1 so that scores of different questions can be compared."""
    bm25 = max(0.0, bm25)
    return bm25 / (bm25 + weights.saturation)


def with_neighbours(scores: Mapping[int, float], places: Mapping[int, Place], weights: Weights) -> dict[int, float]:
    """The scores with the votes of the pieces before and after: what stands among good pieces is likely right."""
    at = {(place.document, place.position): scores[piece] for piece, place in places.items()}
    steps = [step for step in range(-weights.reach, weights.reach + 1) if step]
    if not steps:
        return dict(scores)
    smoothed = {}
    for piece, place in places.items():
        votes = sum(at.get((place.document, place.position + step), 0.0) for step in steps)
        smoothed[piece] = scores[piece] + weights.neighbours * votes / len(steps)
    return smoothed


def recency_of(day: str, today: str, weights: Weights) -> float:
    """1 today, 0.5 after the half-life."""
    age = (datetime.fromisoformat(today) - datetime.fromisoformat(day)).days
    return float(0.5 ** (max(0, age) / weights.half_life_days))


def run(
    store: Store,
    query: SearchQuery,
    *,
    generation: Generation | None,
    vector: Vectors | None,
    weights: Weights,
    now: float,
    timings: dict[str, float],
) -> list[Hit]:
    """The hits of the query. The caller holds one view of the store (`Store.reading`) around it.

    Args:
        generation: the vectors to use, with `vector`, the question's own; None for keywords alone.
        timings: gets the milliseconds of each step.
    """
    clock = _Clock(timings)
    allowed = filter_of(query)
    match = keyword_query(query.text, query.keywords)
    keyword = dict(store.keyword_candidates(match, allowed, limit=weights.candidates))
    # Of all that was ever said there is always enough to fill a leg: the notes have one of their own.
    notes = replace(allowed, sources=frozenset({"memory"})) if _is_mixed(query) and store.has_transcripts() else None
    if notes and len(keyword) >= weights.candidates:
        keyword |= dict(store.keyword_candidates(match, notes, limit=weights.candidates))
    clock.lap("keyword")
    cosines: dict[int, float] = {}
    if generation is not None and vector is not None:
        cosines = dict(store.vector_candidates(generation.id, vector, allowed, limit=weights.candidates))
        if notes and len(cosines) >= weights.candidates:
            cosines |= dict(store.vector_candidates(generation.id, vector, notes, limit=weights.candidates))
        clock.lap("vector")
        cosines |= store.cosines(generation.id, vector, [piece for piece in keyword if piece not in cosines])
        clock.lap("cosine")
    scores = fuse(keyword, cosines, weights, hybrid=vector is not None)
    places = {place.id: place for place in store.places(list(scores))}
    clock.lap("places")
    candidates = _ranked(query, scores, keyword, cosines, places, weights, now=now)
    clock.lap("fuse")
    # Merging and the budget can skip some; more than this many pieces never make up the hits asked for.
    wanted = candidates[: query.max_results * 4]
    rows = store.hits([candidate.place.id for candidate in wanted])
    clock.lap("fetch")
    return _hits(wanted, rows, query, weights)


def _is_mixed(query: SearchQuery) -> bool:
    """Whether notes and transcripts are searched together."""
    return query.sources is None or len(query.sources) > 1


def filter_of(query: SearchQuery) -> Filter:
    """The query's limits as the store takes them."""
    return Filter(
        projects=query.projects,
        sources=query.sources,
        path=query.path,
        since=_day(query.since),
        until=_day(query.until),
    )


def _day(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).date().isoformat()


def _ranked(
    query: SearchQuery,
    scores: Mapping[int, float],
    keyword: Mapping[int, float],
    cosines: Mapping[int, float],
    places: Mapping[int, Place],
    weights: Weights,
    *,
    now: float,
) -> list[Candidate]:
    """The pieces that pass `min_score`, best first by the rank asked for."""
    smoothed = with_neighbours(scores, places, weights)
    if _is_mixed(query):
        for piece, place in places.items():
            if place.source == "sessions":
                smoothed[piece] *= weights.sessions
    today = datetime.fromtimestamp(now, UTC).date().isoformat()
    recency: dict[str, float] = {}
    found = []
    for piece, place in places.items():
        score = max(scores[piece], weights.vector_alone * cosines.get(piece, 0.0))
        if score < query.min_score:
            continue
        if place.day not in recency:
            recency[place.day] = recency_of(place.day, today, weights)
        fresh = recency[place.day]
        rank = {
            "relevance": 0.0,
            "balanced": _balanced(smoothed[piece], fresh, place.project == query.project, weights),
            "importance": NEUTRAL_IMPORTANCE,
            "recency": fresh,
        }[query.rank]
        vector = cosines.get(piece)
        found.append(Candidate(place, score, vector, saturate(keyword.get(piece, 0.0), weights), fresh, rank))
    found.sort(key=lambda candidate: (-candidate.rank, -smoothed[candidate.place.id], candidate.place.id))
    return found


def _balanced(score: float, recency: float, own_project: bool, weights: Weights) -> float:
    return (
        weights.balanced_score * score
        + weights.balanced_recency * recency
        + weights.balanced_importance * NEUTRAL_IMPORTANCE
        + weights.balanced_project * own_project
    )


def _hits(candidates: list[Candidate], rows: Mapping[int, HitRow], query: SearchQuery, weights: Weights) -> list[Hit]:
    """The first hits, pieces that touch made one, within the budget of tokens; the best piece is returned even if it alone is over it."""
    groups: list[list[Candidate]] = []
    at: dict[tuple[int, int], list[Candidate]] = {}
    spent = 0
    for candidate in candidates:
        row = rows.get(candidate.place.id)
        if row is None:
            continue
        if query.max_tokens is not None and groups and spent + row.tokens > query.max_tokens:
            continue
        place = candidate.place
        group = at.get((place.document, place.position - 1)) or at.get((place.document, place.position + 1))
        if group is None or len(group) == weights.joined:
            if len(groups) == query.max_results:
                break
            group = []
            groups.append(group)
        group.append(candidate)
        at[(place.document, place.position)] = group
        spent += row.tokens
    return [_hit(group, rows) for group in groups]


def _hit(group: list[Candidate], rows: Mapping[int, HitRow]) -> Hit:
    best = max(group, key=lambda candidate: candidate.score)
    ordered = [rows[candidate.place.id] for candidate in sorted(group, key=lambda candidate: candidate.place.position)]
    first = rows[best.place.id]
    return Hit(
        path=first.path,
        project=first.project,
        start_line=ordered[0].start_line,
        end_line=ordered[-1].end_line,
        score=round(min(1.0, best.score), 4),
        vector=None if best.vector is None else round(best.vector, 4),
        keyword=round(best.keyword, 4),
        recency=round(best.recency, 4),
        importance=NEUTRAL_IMPORTANCE,
        usage=0.0,
        snippet=_snippet(ordered),
        heading=first.heading,
        source=first.source,
        author=first.author,
        updated_at=iso(first.updated_at),
    )


def _snippet(rows: list[HitRow]) -> str:
    """The text of neighbouring pieces as it stands in the document; lines that two of them share appear once."""
    text = rows[0].text
    for before, row in pairwise(rows):
        shared = before.end_line - row.start_line + 1
        if shared <= 0:
            text += "\n" * (1 - shared) + row.text
        elif row.start_line == row.end_line:  # slices of one long line
            text += " " + row.text
        else:
            text += "".join("\n" + line for line in row.text.split("\n")[shared:])
    return text


def iso(moment: float) -> str:
    """A moment (seconds since 1970) as ISO 8601 in UTC."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class _Clock:
    """Milliseconds from lap to lap."""

    def __init__(self, timings: dict[str, float]) -> None:
        self._timings = timings
        self._since = time.perf_counter()

    def lap(self, name: str) -> None:
        moment = time.perf_counter()
        self._timings[name] = (moment - self._since) * 1e3
        self._since = moment
