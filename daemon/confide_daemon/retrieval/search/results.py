"""What a search answers: some lines of a document each, with what they are, and, for who asks, why they were found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confide_daemon.retrieval.search.dates import Days
from confide_daemon.retrieval.search.ranking import Legs
from confide_daemon.retrieval.search.scoring import Evidence
from confide_daemon.retrieval.search.snippets import Group, snippet
from confide_daemon.retrieval.search.superseded import Relative, Succession
from confide_daemon.retrieval.search.terms import Question
from confide_daemon.store.rows import HitRow, NoteRow, Supersession
from confide_memory.timestamps import iso


@dataclass(slots=True)
class Factors:
    """What makes up the rank of a piece."""

    relevance: float  # of both legs together, each relative to its best
    votes: float  # from the pieces around
    exact: float  # a name or phrase that stands there as it was asked for
    dated: float  # of the days that the question names
    source: float  # transcripts stand behind notes
    evidence: Evidence | None = None  # of the score that is shown, once that is worked out
    order: float | None = None  # what another rank than by relevance puts it at
    is_pulled: bool = False  # it stands here for a note that it supersedes

    @property
    def rank(self) -> float:
        """What pieces are ordered by."""
        return (self.relevance + self.votes) * self.dated * self.source + self.exact


@dataclass(frozen=True, slots=True)
class Explanation:
    """How the search went as a whole, and for each hit what its best piece has."""

    matched: str
    exact: str
    days: str | None
    keyword_candidates: int
    vector_candidates: int
    hits: list[dict[str, Any]]

    @classmethod
    def of(
        cls, asked: Question, days: Days | None, legs: Legs, pieces: Sequence[int], factors: Mapping[int, Factors]
    ) -> Explanation:
        """The explanation of the hits whose best pieces are given."""
        keyword = {piece: rank for rank, piece in enumerate(legs.keyword, 1)}
        vector = {piece: rank for rank, piece in enumerate(legs.vector, 1)}
        cosines = legs.cosines or {}
        hits = []
        for piece in pieces:
            found = factors[piece]
            evidence = found.evidence or Evidence(0.0, 0.0)
            hits.append(
                {
                    "keywordRank": keyword.get(piece),
                    "vectorRank": vector.get(piece),
                    "bm25": _rounded(legs.keyword.get(piece)),
                    "cosine": _rounded(cosines.get(piece)),
                    "relevance": _rounded(found.relevance),
                    "votes": _rounded(found.votes),
                    "exact": _rounded(found.exact),
                    "dated": _rounded(found.dated),
                    "source": _rounded(found.source),
                    "rank": _rounded(found.rank),
                    "terms": _rounded(evidence.terms),
                    "keyword": _rounded(evidence.keyword),
                    "vector": _rounded(evidence.vector),
                    "best": _rounded(evidence.best),
                    "order": _rounded(found.order),
                    "pulledIn": found.is_pulled,
                }
            )
        days_name = None if days is None else days.name
        return cls(asked.match, asked.exact, days_name, len(legs.keyword), len(legs.vector), hits)

    def wire(self) -> dict[str, Any]:
        """As `memory_search` answers it: `hits` in the order of the results."""
        return {
            "matched": self.matched,
            "exact": self.exact,
            "days": self.days,
            "keywordCandidates": self.keyword_candidates,
            "vectorCandidates": self.vector_candidates,
            "hits": self.hits,
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


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
    alike: int = 0  # other pieces of the project that say the same, and were left out
    document: int = 0
    note: NoteRow | None = None
    superseded_by: tuple[Supersession, ...] = ()
    related: tuple[Relative, ...] | None = None  # None: nobody asked


@dataclass(frozen=True, slots=True)
class Noted:
    """What is known of the notes among the hits; by document, and what they are related with by their ids."""

    notes: Mapping[int, NoteRow] = field(default_factory=dict)
    succession: Succession = field(default_factory=lambda: Succession(()))
    related: Mapping[str, tuple[Relative, ...]] | None = None

    def related_of(self, document: int) -> tuple[Relative, ...] | None:
        """What a document is related with; None where nobody asked, or it is no note."""
        note = self.notes.get(document)
        return None if self.related is None or note is None else self.related.get(note.id, ())


def hit_of(group: Group, rows: Mapping[int, HitRow], noted: Noted) -> Hit:
    """The hit that a group makes."""
    best = group.best
    ordered = group.rows(rows)
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
        importance=round(best.importance, 4),
        usage=round(best.usage, 4),
        snippet=snippet(ordered),
        heading=first.heading,
        source=first.source,
        author=first.author,
        updated_at=iso(first.updated_at),
        alike=group.alike,
        document=first.document,
        note=noted.notes.get(first.document),
        superseded_by=noted.succession.by(first.document),
        related=noted.related_of(first.document),
    )
