"""The search itself: a keyword search and a vector search, one ranking of both, votes of
neighbouring chunks, and short hits.

`ranking` sorts chunks, `scoring` computes the score that a hit shows, `results` builds hits from
chunks, and `query` contains the filters; daemon/ranking.md explains all of it with an example. The
engine uses no threads and no files: it reads a `Store` and returns hits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, TypeGuard

from confide_daemon.embedding.embedder import Vectors
from confide_daemon.embedding.reranker import Reranker
from confide_daemon.retrieval.search.query import SearchQuery, filter_of, wide_filter_of, zone_seconds
from confide_daemon.retrieval.search.ranking import (
    MOST_TOLD,
    NEUTRAL_IMPORTANCE,
    Legs,
    NoteSuccession,
    Weights,
    balance,
    best_first,
    recency_of,
    relevance,
    usage_of,
    votes,
)
from confide_daemon.retrieval.search.results import (
    MOST_RELATED,
    Candidate,
    Factors,
    Grouping,
    HitGroup,
    HitScores,
    Noted,
    SearchHit,
    explain,
    hit_of,
    relatives,
)
from confide_daemon.retrieval.search.scoring import (
    FULL_HELD,
    MOST_COUNTED,
    WORDS_ONLY,
    Background,
    CosineScale,
    Evidence,
    QueryTerms,
    ScoreCalibration,
    TermCounts,
    few_of,
    field_of,
    stem_line,
)
from confide_daemon.store.rows import Filter, HitRow, NoteRow, PiecePlace
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.keyword import piece_header
from confide_daemon.store.tables.pieces import Generation
from confide_memory.documents import GLOBAL_PROJECT, is_note
from confide_memory.mentions import names_in
from confide_memory.tools.days import DayRange, days_of
from confide_memory.tools.foreign import is_foreign
from confide_memory.tools.name_check import NameCheck, lacking_days
from confide_memory.tools.past import LEFT_OUT, asks_for_done, asks_for_former, is_over
from confide_memory.tools.question import DAY_WEIGHT, SearchQuestion, of_days, question, saturate, unknown_share
from confide_memory.tools.search_text import falling

# Only the best chunks by relevance are read and scored: at most this many times the number of hits
# requested. If they are then sorted by another rank, at least CLOSELY_AT_LEAST.
CLOSELY = 4
CLOSELY_AT_LEAST = 64
# Number of best chunks that a reranker sorts again.
FIRST = 20
# Nearest chunks by the multilingual model that an English question looks at.
FOREIGN = 32
# The query's terms also count if they are in chunks this far before or after.
REACH = 2
AROUND = range(-REACH, REACH + 1)
# A document may hold chunks of classes that the query excludes. Each leg returns up to this many
# more candidates, so that removing them loses no hit.
MOST_TAKEN_OUT = 1000
# Least score of a document whose name or alias the query is.
OF_A_PAGE = 0.8
# Ranks are compared in steps of one over this number; equal steps are a tie.
TIED = 10**6


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """The result of `run`."""

    hits: list[SearchHit]
    warnings: list[str]
    explanation: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class PastNote:
    """A matching note that is superseded or done, and therefore no hit of its own. `rank` is the
    number of hits that rank above it, `candidate` its best chunk.
    """

    rank: int
    candidate: Candidate
    row: HitRow


@dataclass(frozen=True, slots=True)
class Aside:
    """The vectors of the multilingual model, for chunks that are not English: their generation (set
    of vectors), the query's vector by that model, and the scale of the model's cosines.
    """

    generation: Generation
    vector: Vectors
    scale: CosineScale


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The hits of a search, with warnings and data on how they were found."""

    hits: list[SearchHit]
    mode: str  # hybrid, keyword
    warnings: list[str]
    index_age_s: float  # how long the oldest piece has waited for its vector; 0 when none waits
    timings: dict[str, float] = field(default_factory=dict)  # milliseconds by step
    explanation: dict[str, Any] | None = None


def run(
    store: Store,
    query: SearchQuery,
    *,
    generation: Generation | None,
    vector: Vectors | None,
    weights: Weights,
    now: float,
    timings: dict[str, float],
    yardstick: ScoreCalibration | None = None,
    reranker: Reranker | None = None,
    stemmed: Callable[[str], str] = stem_line,
    aside: Aside | None = None,
) -> SearchOutcome:
    """Return the hits of the query. Call within one snapshot of the store (`Store.reading`).

    Args:
        generation: the set of chunk vectors to search; None for keywords only.
        vector: the query's vector by the same model; None for keywords only.
        timings: receives the milliseconds that each step took.
        yardstick: the calibration of the model's cosines; None for that of the packaged model,
            without background texts.
        reranker: sorts the best chunks again; None to leave their order.
        stemmed: `stem_line`, or a cache of it.
        aside: other vectors for chunks that are not English; None if there are none.
    """
    search = _Search(store, query, weights, now, timings, stemmed, generation, vector, yardstick or ScoreCalibration())
    search.aside = aside
    ranked = search.rank()
    if reranker is not None:
        ranked = search.rerank(ranked, reranker)
    return search.search_outcome(ranked)


def _importance(row: HitRow) -> float:
    return NEUTRAL_IMPORTANCE if row.importance is None else row.importance


class _Search:
    """A search, from the legs to the hits."""

    def __init__(
        self,
        store: Store,
        query: SearchQuery,
        weights: Weights,
        now: float,
        timings: dict[str, float],
        stemmed: Callable[[str], str],
        generation: Generation | None,
        vector: Vectors | None,
        yardstick: ScoreCalibration,
    ) -> None:
        self._store = store
        self._generation = generation
        self._vector = vector
        self._yardstick = yardstick
        self.aside: Aside | None = None
        self._legs = Legs({})
        self._stem_line = stemmed
        self._query = query
        self._weights = weights
        self._today = datetime.fromtimestamp(now, query.zone).date()
        self._zone_s = zone_seconds(query.zone)
        self._days: DayRange | None = days_of(query.text, self._today) if weights.dated else None
        self._question: SearchQuestion = question(
            query.text,
            query.keywords,
            aside=self._days.words if self._days else "",
            days=self._days.phrases() if self._days else (),
        )
        wide = None if self._days is None else of_days(self._question, self._days)
        self._asks_for_days = wide is not None
        self._question = wide or self._question
        self._terms = QueryTerms(self._question.terms, self._question.also)
        self._names = NameCheck(self._question)
        self._name_terms = [QueryTerms([term]) for term in self._names.terms]
        self._stated_days = QueryTerms((self._question.day,)) if self._question.day else None
        self._term_weights: QueryTerms | None = None
        self._few = 0.0
        self._unknown_share: float | None = None
        self._clock = _Clock(timings)
        self._timings = timings
        self._places: dict[int, PiecePlace] = {}
        self._factors: dict[int, Factors] = {}
        self._past: dict[int, PastNote] = {}
        self._shows_former, self._shows_done = self._asks_for_past(query)
        self._warnings: list[str] = []
        self._grouping = Grouping(max_results=query.max_results, max_tokens=query.max_tokens, joined=weights.joined)

    def _asks_for_past(self, query: SearchQuery) -> tuple[bool, bool]:
        """Return whether superseded notes may be hits, and whether those that are done may."""
        if query.is_unasked:
            return False, False
        is_file = (query.path or "").endswith(".md") and "*" not in (query.path or "")
        is_then = self._days is not None and self._days.last < self._today
        if is_file or is_then or not query.min_score or asks_for_former(query.text):
            return True, True
        return False, asks_for_done(query.text)

    def legs(self) -> Legs:
        """Return the candidates of both legs, each with its exact cosine."""
        store, generation, vector = self._store, self._generation, self._vector
        # The keyword leg alone gets twice the candidates: this gains a point of recall within 1,000
        # tokens.
        limit = self._weights.candidates * (1 if vector is not None else 2)
        if self._query.classes is not None:
            # Chunks of excluded classes are removed after the legs.
            limit += store.pieces.count_doubted(most=MOST_TAKEN_OUT)
        if (self._query.since or self._query.until) is not None:
            # So are chunks of other days than asked for.
            limit += store.pieces.stating_days(most=MOST_TAKEN_OUT)
        keyword: dict[int, float] = {}
        for allowed in self._views(keyword):
            # Scores of the whole leg take precedence: among fewer rows the same words may weigh
            # differently.
            keyword = dict(self._by_words(self._question.match, allowed, limit)) | keyword
        exact: dict[int, float] = {}
        if self._question.exact and self._weights.exact:
            exact = dict(self._by_words(self._question.exact, filter_of(self._query), limit))
            # Exact matches that the other words push out of the leg.
            keyword |= {piece: score for piece, score in exact.items() if piece not in keyword}
        if self._days is not None and self._asks_for_days:
            allowed, (first, last) = filter_of(self._query), self._days.span
            of_these = store.pieces.of_days(first, last, allowed, zone_s=self._zone_s, limit=limit)
            keyword |= {piece: 0.0 for piece in of_these if piece not in keyword}
        self._clock.lap("keyword")
        if generation is None or vector is None:
            return Legs(_sort_scores(keyword), exact=exact)
        cosines: dict[int, float] = {}
        nearest: list[int] = []
        for allowed in self._views(cosines):
            found = store.vectors.nearest(generation.id, vector, allowed, limit=limit)
            nearest = nearest or [piece for piece, _ in found]
            cosines |= dict(found)
        self._clock.lap("vector")
        cosines |= store.vectors.cosines(generation.id, vector, [piece for piece in keyword if piece not in cosines])
        self._clock.lap("cosine")
        if self.aside is not None:
            cosines |= self._foreign(self.aside, list(cosines))
            nearest = sorted({*nearest, *cosines}, key=cosines.__getitem__, reverse=True)[: len(nearest)]
            self._clock.lap("aside")
        return Legs(_sort_scores(keyword), nearest, cosines, exact)

    def _foreign(self, aside: Aside, others: Sequence[int]) -> dict[int, float]:
        """Return the cosines of candidates that are not English, on the scale of the other model,
        which does not understand them.
        """
        vectors = self._store.vectors
        found = dict(vectors.nearest(aside.generation.id, aside.vector, filter_of(self._query), limit=FOREIGN))
        found |= vectors.cosines(aside.generation.id, aside.vector, [piece for piece in others if piece not in found])
        rows = self._store.pieces.hits(list(found))
        ours = self._yardstick.scale
        return {
            piece: ours.cosine(aside.scale.of(cosine))
            for piece, cosine in found.items()
            if piece in rows and is_foreign(rows[piece].text)
        }

    def _by_words(self, match: str, allowed: Filter, limit: int) -> list[tuple[int, float]]:
        asked, is_limited = filter_of(self._query), self._query.is_limited
        return self._store.keywords.candidates(match, allowed, limit=limit, of=asked, is_limited=is_limited)

    def _views(self, found: Mapping[int, float]) -> Iterator[Filter]:
        """Yield the filters for each leg: first all that is allowed; then, if that filled the leg,
        subsets that would get no place in it.
        """
        allowed = filter_of(self._query)
        yield allowed
        if len(found) < self._weights.candidates:
            return
        if _is_mixed(self._query) and self._store.documents.has_transcripts():
            # There are always enough transcripts to fill a leg, so notes get a leg of their own.
            yield replace(allowed, sources=frozenset({"memory"}))
        if self._days is not None and allowed.since is None and allowed.until is None:
            first, last = self._days.span
            yield replace(allowed, since=first, until=last, zone_s=self._zone_s)

    def rank(self) -> list[int]:
        """Return the ids of the candidates by relevance, best first."""
        weights = self._weights
        legs = self._legs = self._filter_legs(self.legs())
        own = relevance(legs, weights)
        if legs.cosines is not None and len(own) > weights.compared:
            # Drop the candidates that both legs rank last, but keep exact matches of names.
            first = best_first(own)[: weights.compared]
            own = {piece: own[piece] for piece in (*first, *(legs.exact or {}))}
        places = self._store.pieces.places(list(own), zone_s=self._zone_s)
        self._places = {place.id: place for place in places if self._is_of_time(place)}
        self._clock.lap("places")
        own = {piece: own[piece] for piece in self._places}
        gained = votes(own, self._places, weights)
        exact, best = legs.exact or {}, max((legs.exact or {}).values(), default=0.0)
        days, talk = self._days, weights.sessions if _is_mixed(self._query) else 1.0
        # The current project comes before the global one where both match equally well.
        near = {GLOBAL_PROJECT: 2} if self._query.project is None else {GLOBAL_PROJECT: 2, self._query.project: 0}
        for piece, place in self._places.items():
            self._factors[piece] = Factors(
                own[piece],
                gained[piece],
                weights.exact * self._question.named * exact.get(piece, 0.0) / best if best > 0 else 0.0,
                1 + weights.dated if days and days.holds(place.day, place.last_day) else 1.0,
                talk if place.source == "sessions" else 1.0,
            )
        self._name_pages()
        ranked = [
            (-round(self._factors[piece].rank * TIED), near.get(place.project, 1), piece)
            for piece, place in self._places.items()
        ]
        self._clock.lap("fuse")
        return [piece for _, _, piece in sorted(ranked)]

    def _is_of_time(self, place: PiecePlace) -> bool:
        """Return True if a chunk is of the time that `since` and `until` limit the search to: its
        document may hold chunks of other days.
        """
        allowed = filter_of(self._query)
        is_late = allowed.since is None or (place.last_day or place.day) >= allowed.since
        return is_late and (allowed.until is None or place.day <= allowed.until)

    def _name_pages(self) -> None:
        """Let a document whose name or alias the query is rank above all that only mention it: by
        its best chunk.
        """
        if self._query.is_unasked or self._weights.ranking == "original" or not self._places:
            return
        names = names_in(self._query.text)
        documents = self._store.mentions.documents_named(names, self._query.projects) if names else frozenset[int]()
        best: dict[int, int] = {}
        for piece, place in self._places.items():
            if place.document in documents:
                known = best.setdefault(place.document, piece)
                if (self._factors[piece].rank, -place.position) > (
                    self._factors[known].rank,
                    -self._places[known].position,
                ):
                    best[place.document] = piece
        above = max((factors.rank for factors in self._factors.values()), default=0.0)
        for piece in best.values():
            self._factors[piece].page = above

    def _filter_legs(self, legs: Legs) -> Legs:
        """Remove chunks of classes that the query excludes: a document by an agent may hold
        untrusted lines.
        """
        classes = self._query.classes
        if classes is None:
            return legs
        all_of_them = {*legs.pieces, *legs.vector, *(legs.exact or {})}
        out = self._store.pieces.of_other_classes(all_of_them, classes)
        if not out:
            return legs
        return replace(
            legs,
            keyword=_without(legs.keyword, out),
            vector=[piece for piece in legs.vector if piece not in out],
            cosines=None if legs.cosines is None else _without(legs.cosines, out),
            exact=None if legs.exact is None else _without(legs.exact, out),
        )

    def rerank(self, ranked: list[int], reranker: Reranker) -> list[int]:
        """Return the candidates, the first of them in the reranker's order."""
        rows = self._store.pieces.hits(ranked[:FIRST])
        first = [piece for piece in ranked[:FIRST] if piece in rows]
        order = reranker.order(self._query.text, [f"{rows[piece].heading}\n{rows[piece].text}" for piece in first])
        if reranker.failure is not None:
            self._warnings.append(f"{reranker.failure}; ranked without it")
        self._clock.lap("rerank")
        return [first[index] for index in order] + ranked[FIRST:]

    def closely(self, ranked: Sequence[int]) -> Iterator[tuple[Candidate, HitRow]]:
        """Yield the chunks that pass `min_score`, in the order requested."""
        query = self._query
        if query.rank == "relevance" and not query.is_unasked:
            # Score a few more chunks than hits at a time, since neighbours are joined, until there
            # are enough.
            start, step = 0, query.max_results + query.max_results // 2
            # Near-duplicates are no hits and must not hide the chunks after them.
            while start < min(
                limit := query.max_results * CLOSELY + self._grouping.alike + len(self._past), len(ranked)
            ):
                end = min(start + step, limit)
                scored: Iterable[tuple[Candidate, HitRow]] = self._score(ranked[start:end])
                if self._names.is_needed:
                    # A chunk that only seemed to have a name comes after those that have it.
                    scored = sorted(scored, key=lambda entry: -entry[0].rank)
                yield from self._present(scored, over=self._over(ranked[start:end]))
                start = end
            return
        chosen = list(self._score(ranked[: max(query.max_results * CLOSELY, CLOSELY_AT_LEAST)]))
        # The sort is stable: equal chunks stay in the order of relevance.
        # A prompt gets few hits: those that most likely help, whatever their rank.
        chosen.sort(key=lambda entry: (-self._order(entry[0]), -entry[0].score))
        yield from self._present(chosen, over=self._over([candidate.place.id for candidate, _ in chosen]))

    def _present(
        self, scored: Iterable[tuple[Candidate, HitRow]], *, over: Set[int]
    ) -> Iterator[tuple[Candidate, HitRow]]:
        """Yield the chunks but those of the documents `over`, which are remembered as past notes."""
        for candidate, row in scored:
            if row.document not in over:
                yield candidate, row
            elif row.document not in self._past:
                self._past[row.document] = PastNote(len(self._grouping.groups), candidate, row)

    def _over(self, pieces: Sequence[int]) -> Set[int]:
        """Return the documents of these chunks that are notes of the past, which the query does not
        ask for.

        A note is superseded for a caller who may find the newer one where he searches.
        """
        over: set[int] = set()
        documents = {self._places[piece].document for piece in pieces if self._places[piece].source == "memory"}
        if not self._shows_former:
            succession = NoteSuccession.of(self._store, sorted(documents), self._query.reach, self._query.classes)
            above = {one: succession.above(one) for one in documents} if succession else {}
            newer = sorted({other for others in above.values() for other in others})
            found = set(self._store.documents.filter_documents(newer, wide_filter_of(self._query))) if newer else set()
            over |= {one for one, others in above.items() if not found.isdisjoint(others)}
        if not self._shows_done:
            named = {self._places[piece].document for piece in pieces if piece in (self._legs.exact or {})}
            # A note that is named exactly, as a ticket by its number, is asked for.
            asked = documents if self._query.is_unasked else documents - named
            over |= self._finished_tasks(sorted(asked))
        self._clock.lap("notes")
        return over

    def _finished_tasks(self, documents: Sequence[int]) -> set[int]:
        return {one for one, status in self._store.notes.statuses(documents).items() if is_over(status)}

    def _order(self, candidate: Candidate) -> float:
        """Return a chunk's sort value in the query's rank."""
        query = self._query
        if query.rank == "relevance":
            order = candidate.score
        elif query.rank == "importance":
            order = candidate.importance
        elif query.rank == "recency":
            order = candidate.recency
        else:
            order = balance(
                candidate.score,
                recency=candidate.recency,
                importance=candidate.importance,
                usage=candidate.usage,
                is_own_project=candidate.place.project == query.project,
                weights=self._weights,
            )
        if query.rank != "relevance":
            self._factors[candidate.place.id].order = order
        return order

    def _orders(self, groups: Sequence[HitGroup], succession: NoteSuccession | None) -> list[float]:
        """Return the sort value of each hit, at least that of a note below it that it supersedes."""
        orders = [self._order(group.best) for group in groups]
        places: dict[int, list[int]] = {}
        for place, group in enumerate(groups):
            places.setdefault(group.document, []).append(place)
        for place, group in enumerate(groups):
            # A note that supersedes an answer is an answer as well, whatever its words are.
            for above in succession.above(group.document) if succession else ():
                for newer in places.get(above, ()):
                    if newer < place:
                        orders[newer] = max(orders[newer], orders[place])
        return orders

    def _shown_scores(self, groups: Sequence[HitGroup], orders: Sequence[float]) -> list[HitScores]:
        """Return the scores that each hit shows. The value that sorts the hits never rises from one
        hit to the next.
        """
        orders = falling(orders)
        if self._query.rank == "relevance":
            return [HitScores(order) for order in orders]
        return [HitScores(group.best.score, order) for group, order in zip(groups, orders, strict=True)]

    def _score_to_show(self, evidence: Evidence, factors: Factors) -> float:
        """Return the score that a chunk shows."""
        if self._weights.ranking == "original":
            return min(1.0, factors.relevance)
        return evidence.unasked_score if self._query.is_unasked else evidence.score

    def _may_show(self, row: HitRow | None) -> TypeGuard[HitRow]:
        """Return True if the chunk exists and the query allows its class. Every path to a hit
        passes this check.
        """
        return row is not None and (self._query.classes is None or row.class_ in self._query.classes)

    def _score(
        self, pieces: Sequence[int], *, least: float | None = None, cosines: Mapping[int, float] | None = None
    ) -> Iterator[tuple[Candidate, HitRow]]:
        """Yield the chunks that score at least `least` (None: the query's `min_score`), using these
        cosines (None: those of the legs).
        """
        legs, generation = self._legs, self._generation
        least = self._query.min_score if least is None else least
        cosines = legs.cosines if cosines is None else cosines
        is_measured = cosines is not None and (generation is None or generation.provider not in WORDS_ONLY)
        cosines = cosines or {}
        relevance_of_field = field_of(factors.relevance for factors in self._factors.values())
        if is_measured:
            pieces = [piece for piece in pieces if self._best_score(piece, cosines, relevance_of_field) >= least]
        rows = self._store.pieces.hits(pieces)
        texts = self._store.pieces.texts_around(pieces, reach=REACH)
        self._clock.lap("fetch")
        today = self._today.isoformat()
        for piece in pieces:
            row = rows.get(piece)
            if not self._may_show(row):
                continue
            place, factors, cosine = self._places[piece], self._factors[piece], cosines.get(piece)
            evidence = self._evidence(row, texts, cosine if is_measured else None, relevance_of_field)
            factors.evidence = evidence
            factors.score = score = max(self._score_to_show(evidence, factors), OF_A_PAGE if factors.page else 0.0)
            if score < least:
                continue
            fresh = recency_of(place.day, today, self._weights)
            importance = _importance(row)
            usage = usage_of(row.uses, self._weights)
            yield Candidate(place, factors.rank, score, cosine, evidence.keyword, fresh, importance, usage), row
        self._clock.lap("score")

    def _evidence(
        self, row: HitRow, texts: Mapping[tuple[int, int], str], cosine: float | None, relevance_of_field: float
    ) -> Evidence:
        """Return the values from which a chunk's score is computed. `texts`: its text and those
        near it, by document and position; `cosine`: None without a vector. A chunk that lacks the
        query's names also loses its factor `exact`.
        """
        factors, stemmed = self._factors[row.id], self._stem_line
        near = [stemmed(texts.get((row.document, row.position + step), "")) for step in AROUND]
        header = stemmed(piece_header(row.path, row.heading, row.words))
        is_dated = self._is_dated(row.id, (near[REACH], header))
        share = self._with_day(self._terms.share((*near, header)), is_dated=is_dated)
        bm25 = self._legs.keyword.get(row.id, 0.0)
        is_named = row.id in (self._legs.exact or {}) or (self._asks_for_days and (is_dated or bm25 > 0))
        around = (texts.get((row.document, row.position + step), "") for step in AROUND)
        lacking = self._lacking(row, around, (*near, header), is_dated=is_dated)
        if lacking:
            factors.exact = 0.0  # its name is another one, that has the words of this
        states_day, days = self._places[row.id].states_day, self._days
        if days is not None and states_day and not is_dated:
            text = f"{row.heading}\n{row.text}"
            lacking = max(lacking, lacking_days(days, is_all=self._asks_for_days, text=text))
        if cosine is None:
            lacking = max(lacking, self._compute_unknown_share())
            return Evidence(saturate(bm25), share, is_named=is_named, lacking=lacking)
        match = self._weigh_terms().match((near[REACH], header), (*near, header))
        if is_dated:
            # A day that a document has by its last change says little.
            is_sure = states_day or factors.dated == 1
            held = min(1.0, match.held + (self._day_held if is_sure else 0.0))
            match = match._replace(stated=self._with_day(match.stated, is_dated=True), held=held)
        deviation, everyday = self._background.of(cosine)
        return Evidence(
            saturate(bm25),
            share,
            self._yardstick.scale.of(cosine),
            **match._asdict(),
            deviation=deviation,
            everyday=everyday,
            few=self._few,
            lead=factors.relevance - relevance_of_field,
            is_named=is_named,
            lacking=lacking,
        )

    def _best_score(self, piece: int, cosines: Mapping[int, float], relevance_of_field: float) -> float:
        """Return the highest score that a chunk can get for a prompt, whatever its text, so that
        chunks below the threshold need not be read. 1 if the query is no prompt.
        """
        factors, cosine = self._factors[piece], cosines.get(piece)
        if not self._query.is_unasked or cosine is None or factors.page or self._weights.ranking == "original":
            return 1.0
        _, everyday = self._background.of(cosine)
        lead = factors.relevance - relevance_of_field
        vector = self._yardstick.scale.of(cosine)
        return Evidence(0.0, 0.0, vector, everyday=everyday, lead=lead).best_unasked_score

    def _compute_unknown_share(self) -> float:
        """Return the share of proper nouns in the query that occur nowhere; computed once."""
        if self._unknown_share is None:
            proper = [term for term in self._question.terms if term.is_proper]
            having: Sequence[int] = ()
            if proper:
                matches = [term.match for term in proper]
                having, _ = self._store.keywords.holding(
                    matches, filter_of(self._query), most=1, is_limited=self._query.is_limited
                )
            here = {project.lower() for project in (*(self._query.projects or ()), self._query.project) if project}
            known = {term.ways for term, count in zip(proper, having, strict=True) if count or term.ways[0][0] in here}
            self._unknown_share = unknown_share(self._question, lambda term: term.ways in known)
        return self._unknown_share

    def _lacking(self, row: HitRow, around: Iterable[str], stems: Sequence[str], *, is_dated: bool) -> float:
        """Return how much of the query's names a chunk lacks. `around`: it and its neighbours;
        `stems`: the same, and its headings.
        """
        if not self._names.is_needed:
            return 0.0
        header = "\n".join((row.path, row.heading, row.words))

        def holds(place: int) -> bool:
            return self._name_terms[place].share(stems) > 0

        text = "\n".join((header, *around))
        return self._names.lacking(text, holds, own=f"{header}\n{row.text}", is_dated=is_dated)

    def _is_dated(self, piece: int, texts: Sequence[str]) -> bool:
        """Return True if a chunk is of the days of the query, or names them."""
        is_stated = self._stated_days is not None and self._stated_days.share(texts) > 0
        return is_stated or self._factors[piece].dated > 1

    def _with_day(self, share: float, *, is_dated: bool) -> float:
        return self._question.with_day(share) if is_dated and self._question.day is not None else share

    @cached_property
    def _day_held(self) -> float:
        """Return how much a chunk holds of the query by being of its days, which count as one more
        term. It is as rare as the chunks that name these days.
        """
        if self._question.day is None:
            return 0.0
        asked, is_limited = filter_of(self._query), self._query.is_limited
        counts = self._store.keywords.holding(
            [self._question.day.match], asked, most=MOST_COUNTED, is_limited=is_limited
        )
        return DAY_WEIGHT * TermCounts(*counts).rarity(0) / FULL_HELD

    @cached_property
    def _background(self) -> Background:
        return Background() if self._vector is None else self._yardstick.background(self._vector)

    def _weigh_terms(self) -> QueryTerms:
        """Return the query's terms weighted by their rarity; computed once."""
        if self._term_weights is None:
            asked = self._question
            having, pieces = self._store.keywords.holding(
                [term.match for term in (*asked.terms, *asked.also)],
                filter_of(self._query),
                most=MOST_COUNTED,
                is_limited=self._query.is_limited,
            )
            self._term_weights = QueryTerms(asked.terms, asked.also, TermCounts(having, pieces))
            self._few = few_of(pieces)
            self._clock.lap("rarity")
        return self._term_weights

    def search_outcome(self, ranked: Sequence[int]) -> SearchOutcome:
        query = self._query
        grouping = self._grouping
        rows: dict[int, HitRow] = {}
        for candidate, row in self.closely(ranked):
            rows[row.id] = row
            if not grouping.take(candidate, row):
                break
        self._clock.lap("group")
        groups, noted, succession = grouping.groups, Noted(), None
        notes = [group.document for group in groups if is_note(rows[group.best.place.id].path)]
        if notes := [*notes, *self._past]:
            succession = NoteSuccession.of(self._store, notes, query.reach, query.classes)
            if succession:
                rows |= {past.row.id: past.row for past in self._past.values()}
                groups = self._with_past(groups)
                above = self._above(succession, notes)
                rows |= {row.id: row for _, row in above}
                groups = [*groups, *(HitGroup([candidate]) for candidate, _ in above)]
                groups = [groups[place] for place in succession.arrange([group.document for group in groups])]
        orders = self._orders(groups, succession)
        if succession:
            kept = self._within(groups, rows)
            groups, orders = [groups[place] for place in kept], [orders[place] for place in kept]
        if notes or query.with_related:  # files that are no notes have links all the same
            noted = self._notes_around(succession or noted.succession, [group.document for group in groups])
        self._clock.lap("notes")
        if self._past and not groups:
            self._warnings.append(LEFT_OUT)
        shown = self._shown_scores(groups, orders)
        hits = [hit_of(group, rows, noted, each) for group, each in zip(groups, shown, strict=True)]
        warnings = list(self._warnings)
        if self._days is not None and self._days.words != self._days.name:
            warnings.append(f"'{self._days.words}' was taken for {self._days.name}: what is from then comes first")
        return SearchOutcome(hits, warnings, self._explanation(groups))

    def _explanation(self, groups: Sequence[HitGroup]) -> dict[str, Any] | None:
        """Return how the hits got their places; None if the query does not ask for it."""
        if not self._query.explain:
            return None
        bests = [group.best.place.id for group in groups]
        return explain(self._question, self._days, self._legs, bests, self._factors)

    def _with_past(self, groups: Sequence[HitGroup]) -> list[HitGroup]:
        """Return the hits with the past notes at their places among them."""
        placed = list(groups)
        for count, past in enumerate(self._past.values()):
            placed.insert(past.rank + count, HitGroup([past.candidate]))
        return placed

    def _above(self, succession: NoteSuccession, notes: Sequence[int]) -> list[tuple[Candidate, HitRow]]:
        """Return a chunk of each note that supersedes a note among the hits and was not found
        itself, whatever its score.
        """
        ahead = self._store.documents.filter_documents(succession.ahead_of(notes), filter_of(self._query))
        best: dict[int, int] = {}
        for piece in sorted(self._places, key=lambda piece: -self._factors[piece].rank):
            best.setdefault(self._places[piece].document, piece)
        newest = succession.newest(ahead, beside=notes)
        if not self._shows_done:
            done = self._finished_tasks(newest)
            newest = [one for one in newest if one not in done]
        pieces = [best[one] for one in newest if one in best]
        for first in (self._store.pieces.of_document(one, limit=1) for one in newest if one not in best):
            pieces += first
        fresh = [piece for piece in pieces if piece not in self._places]
        for place in self._store.pieces.places(fresh, zone_s=self._zone_s):
            self._places[place.id] = place
            self._factors[place.id] = Factors(relevance=0.0, votes=0.0, exact=0.0, dated=1.0, source=1.0)
        cosines = self._legs.cosines
        if cosines is not None and self._generation is not None and self._vector is not None:
            cosines = {**cosines, **self._store.vectors.cosines(self._generation.id, self._vector, fresh)}
        for piece in pieces:
            self._factors[piece].is_pulled = True
        return list(self._score(pieces, least=-1.0, cosines=cosines))

    def _within(self, groups: Sequence[HitGroup], rows: Mapping[int, HitRow]) -> list[int]:
        """Return the places of as many groups as were requested, past notes left out; the first is
        kept even if it alone exceeds the token budget.
        """
        kept: list[int] = []
        spent, budget = 0, self._query.max_tokens
        for place, group in enumerate(groups):
            if group.document in self._past:
                continue
            tokens = sum(row.tokens for row in group.rows(rows))
            if budget is None or not kept or spent + tokens <= budget:
                kept.append(place)
                spent += tokens
        return kept[: self._query.max_results]

    def _notes_around(self, succession: NoteSuccession, documents: Sequence[int]) -> Noted:
        notes = self._store.notes.of_documents(documents)
        below = self._below(succession, documents)
        if not self._query.with_related:
            return Noted(notes, succession, below)
        classes = self._query.classes
        links = {one: self._store.mentions.link_rows(one, limit=MOST_RELATED) for one in documents}
        if classes is not None:
            others = self._store.documents.by_id([link.document for found in links.values() for link in found])
            known = {row.id for row in others if row.class_ in classes}
            links = {one: [link for link in found if link.document in known] for one, found in links.items()}
        related = relatives(self._store, list(notes.values()), self._query.reach, classes)
        return Noted(notes, succession, below, related, links)

    def _below(self, succession: NoteSuccession, documents: Sequence[int]) -> dict[int, list[NoteRow]]:
        """Return the past notes that were found, each by the nearest of these documents that
        supersedes it.
        """
        if not self._past or not succession:
            return {}
        shown, below = set(documents), dict[int, list[NoteRow]]()
        notes = self._store.notes.of_documents(list(self._past))
        for document in self._past:
            nearest = next((one for one in succession.above(document) if one in shown), None)
            if nearest is not None and document in notes and len(below.get(nearest, ())) < MOST_TOLD:
                below.setdefault(nearest, []).append(notes[document])
        return below


def _sort_scores(scores: Mapping[int, float]) -> dict[int, float]:
    return {piece: scores[piece] for piece in best_first(scores)}


def _without(scores: Mapping[int, float], out: Set[int]) -> dict[int, float]:
    return {piece: score for piece, score in scores.items() if piece not in out}


def _is_mixed(query: SearchQuery) -> bool:
    """Return True if both notes and transcripts are searched."""
    return query.sources is None or len(query.sources) > 1


class _Clock:
    """Milliseconds from lap to lap; laps of the same name are added up."""

    def __init__(self, timings: dict[str, float]) -> None:
        self._timings = timings
        self._since = time.perf_counter()

    def lap(self, name: str) -> None:
        moment = time.perf_counter()
        self._timings[name] = self._timings.get(name, 0.0) + (moment - self._since) * 1e3
        self._since = moment
