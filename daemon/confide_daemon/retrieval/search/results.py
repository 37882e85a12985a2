"""Why a search found what it found: for `confide search --explain`, and for an agent that asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confide_daemon.searching.calibration import Evidence
from confide_daemon.searching.dates import Days
from confide_daemon.searching.ranking import Legs
from confide_daemon.searching.words import Question


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
