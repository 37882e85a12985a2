"""What a search answers: some lines of a document each, with what they are, and, for who asks, why they were found.

Ranked pieces become hits: neighbours are made one, the same said twice is left out, within the budget of tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from confide_daemon.retrieval.search.ranking import Legs, NoteSuccession
from confide_daemon.retrieval.search.scoring import Evidence
from confide_daemon.store.rows import HitRow, LinkedRow, NoteRow, PiecePlace, Supersession
from confide_daemon.store.space_store import Store
from confide_memory.classes import UNTRUSTED, lowest
from confide_memory.documents import iso
from confide_memory.tools.days import DayRange
from confide_memory.tools.question import SearchQuestion

# Two pieces say the same when they share so much of their words and all of their numbers: "budget 5,000" and "budget 6,000" differ.
ALIKE = 0.9
_WORD = re.compile(r"\w+")
# Relations of one hit that are shown.
MOST_RELATED = 32
# What a `[[link]]` says, of the relations that notes can state.
LINK = "see_also"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A piece with its scores, each in 0 to 1 but the cosine in -1 to 1. `rank` orders, `score` is its own."""

    place: PiecePlace
    rank: float
    score: float
    vector: float | None
    keyword: float
    recency: float
    importance: float
    usage: float


@dataclass(slots=True)
class HitGroup:
    """Pieces that stand beside each other, best first, and how many others of the project and source say the same."""

    candidates: list[Candidate] = field(default_factory=list)
    alike: int = 0

    @property
    def best(self) -> Candidate:
        return max(self.candidates, key=lambda candidate: candidate.score)

    @property
    def document(self) -> int:
        return self.candidates[0].place.document

    def rows(self, rows: Mapping[int, HitRow]) -> list[HitRow]:
        return sorted((rows[candidate.place.id] for candidate in self.candidates), key=lambda row: row.position)


class Grouping:
    """Takes pieces, best first, until there are enough hits."""

    def __init__(self, *, max_results: int, max_tokens: int | None, joined: int) -> None:
        self._max_results = max_results
        self._max_tokens = max_tokens
        self._joined = joined
        self._at: dict[tuple[int, int], HitGroup] = {}
        self._said: list[tuple[frozenset[str], HitRow, HitGroup]] = []
        self._spent = 0
        self.groups: list[HitGroup] = []

    @property
    def alike(self) -> int:
        """How many pieces were left out since they say the same as another."""
        return sum(group.alike for group in self.groups)

    def take(self, candidate: Candidate, row: HitRow) -> bool:
        """Adds the piece to a hit or makes it one; False when there are enough hits.

        The first is taken even if it alone is over the budget; a later one that does not fit is passed over.
        """
        place = candidate.place
        words = frozenset(_WORD.findall(row.text.lower()))
        # Kept apart from the budget: what is not shown costs nothing, and it is good to know how often the same was noted.
        for said, other, group in self._said:
            if (other.project, other.source) == (row.project, row.source) and _alike(said, words):
                group.alike += 1
                return True
        if self._max_tokens is not None and self.groups and self._spent + row.tokens > self._max_tokens:
            return True
        near = self._at.get((place.document, place.position - 1)) or self._at.get((place.document, place.position + 1))
        if near is None or len(near.candidates) == self._joined:
            if len(self.groups) == self._max_results:
                return False
            near = HitGroup()
            self.groups.append(near)
        near.candidates.append(candidate)
        self._at[(place.document, place.position)] = near
        self._said.append((words, row, near))
        self._spent += row.tokens
        return True


def _alike(one: frozenset[str], other: frozenset[str]) -> bool:
    smaller, larger = sorted((len(one), len(other)))
    if smaller < ALIKE * larger:
        return False
    differing = one ^ other
    if len(differing) > (1 - ALIKE) * len(one | other):
        return False
    return not any(character.isdigit() for word in differing for character in word)


def snippet(rows: list[HitRow]) -> str:
    """The text of neighbouring pieces as it stands in the document; lines that two of them share appear once."""
    text = rows[0].text
    for before, row in pairwise(rows):
        shared = before.end_line - row.start_line + 1
        if shared <= 0:
            text += "\n" * (1 - shared) + row.text
        elif row.start_line == row.end_line:  # slices of one long line
            text += " " + row.text
        else:
            lines = row.text.split("\n")
            is_repeated = text.endswith("\n".join(lines[:shared]))
            # Otherwise the piece begins within the line where the one before it ends.
            text += "".join("\n" + line for line in lines[shared:]) if is_repeated else " " + row.text
    return text


@dataclass(slots=True)
class Factors:
    """What makes up the rank of a piece."""

    relevance: float  # of both legs together, each relative to its best
    votes: float  # from the pieces around
    exact: float  # a name or phrase that stands there as it was asked for
    dated: float  # of the days that the question names
    source: float  # transcripts stand behind notes
    evidence: Evidence | None = None  # of the score, once that is worked out
    score: float | None = None  # its own, before it is brought in line with those around it (`HitScores`)
    order: float | None = None  # what another rank than by relevance puts it at
    is_pulled: bool = False  # it stands here for a note that it supersedes

    @property
    def rank(self) -> float:
        return (self.relevance + self.votes) * self.dated * self.source + self.exact


def explained(
    asked: SearchQuestion, days: DayRange | None, legs: Legs, pieces: Sequence[int], factors: Mapping[int, Factors]
) -> dict[str, object]:
    """As `memory_search` answers it: how the search went as a whole, and for each hit what its best piece, one of these, has."""
    keyword = {piece: rank for rank, piece in enumerate(legs.keyword, 1)}
    vector = {piece: rank for rank, piece in enumerate(legs.vector, 1)}
    cosines = legs.cosines or {}
    hits = []
    for piece in pieces:
        found = factors[piece]
        evidence = found.evidence or Evidence(0.0, 0.0)
        numbers = {
            "bm25": legs.keyword.get(piece),
            "cosine": cosines.get(piece),
            "relevance": found.relevance,
            "votes": found.votes,
            "exact": found.exact,
            "dated": found.dated,
            "source": found.source,
            "rank": found.rank,
            "terms": evidence.terms,
            "keyword": evidence.keyword,
            "vector": evidence.vector,
            "best": evidence.best,
            "covered": evidence.covered,
            "stated": evidence.stated,
            "margin": evidence.margin,
            "everyday": evidence.everyday,
            "size": evidence.size,
            "keywordLead": evidence.keyword_lead,
            "vectorLead": evidence.vector_lead,
            "lacking": evidence.lacking,
            "ownScore": found.score,
            "order": found.order,
        }
        hits.append(
            {"keywordRank": keyword.get(piece), "vectorRank": vector.get(piece)}
            | {name: None if value is None else round(value, 4) for name, value in numbers.items()}
            | {"pulledIn": found.is_pulled}
        )
    return {
        "matched": asked.match,
        "exact": asked.exact,
        "days": None if days is None else days.name,
        "keywordCandidates": len(legs.keyword),
        "vectorCandidates": len(legs.vector),
        "hits": hits,
    }


@dataclass(frozen=True, slots=True)
class Relative:
    """A note, or a linked document, that a hit is related with: `direction` is "to" where it states that, "from" where the other does."""

    relation: str
    direction: str
    note: NoteRow | LinkedRow


def relatives(
    store: Store, notes: Sequence[NoteRow], projects: frozenset[str] | None, classes: frozenset[str] | None
) -> dict[str, tuple[Relative, ...]]:
    """The notes of these projects and classes that each of the notes is related with, by the id of the latter."""
    identities = [note.id for note in notes]
    relations = store.notes.relations(identities, projects)
    ends = {end for relation in relations for end in (relation.note, relation.other)}
    named = store.notes.named(sorted(ends), projects)
    known = {identity: note for identity, note in named.items() if classes is None or note.class_ in classes}
    found: dict[str, list[Relative]] = {identity: [] for identity in identities}
    for relation in relations:
        for own, other, direction in ((relation.note, relation.other, "to"), (relation.other, relation.note, "from")):
            if own in found and other in known and other != own and len(found[own]) < MOST_RELATED:
                found[own].append(Relative(relation.kind, direction, known[other]))
    return {identity: tuple(others) for identity, others in found.items()}


@dataclass(frozen=True, slots=True)
class SearchHit:
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
    order: float | None = None  # what the rank puts it at; None: its score does
    class_: str = UNTRUSTED  # the lowest of its pieces


@dataclass(frozen=True, slots=True)
class HitScores:
    """What is shown of a hit: how likely it is an answer, and what another rank than by relevance puts it at."""

    score: float
    order: float | None = None


@dataclass(frozen=True, slots=True)
class Noted:
    """What is known of the notes among the hits; by document, and what they are related with by their ids."""

    notes: Mapping[int, NoteRow] = field(default_factory=dict)
    succession: NoteSuccession = field(default_factory=lambda: NoteSuccession(()))
    related: Mapping[str, tuple[Relative, ...]] | None = None
    linked: Mapping[int, Sequence[LinkedRow]] = field(default_factory=dict)

    def related_of(self, document: int) -> tuple[Relative, ...] | None:
        """What a document is related with, stated relations before links; None where nobody asked, or it is no note and has no links."""
        if self.related is None:
            return None
        note = self.notes.get(document)
        stated = () if note is None else self.related.get(note.id, ())
        known = {(one.direction, one.note.project, one.note.path) for one in stated if one.relation == LINK}
        links = [
            Relative(LINK, one.direction, one)
            for one in self.linked.get(document, ())
            if (one.direction, one.project, one.path) not in known
        ]
        return None if note is None and not links else (*stated, *links)[:MOST_RELATED]


def hit_of(group: HitGroup, rows: Mapping[int, HitRow], noted: Noted, shown: HitScores) -> SearchHit:
    best = group.best
    ordered = group.rows(rows)
    first = rows[best.place.id]
    return SearchHit(
        path=first.path,
        project=first.project,
        start_line=ordered[0].start_line,
        end_line=ordered[-1].end_line,
        score=round(min(1.0, shown.score), 4),
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
        order=None if shown.order is None else round(shown.order, 4),
        class_=lowest(row.class_ for row in ordered),
    )
