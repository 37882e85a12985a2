"""Builds search hits from ranked chunks. A hit is a few lines of a document with metadata and, on
request, an explanation of its rank.

Neighbouring chunks are joined, near-duplicates are left out, and the token budget is kept.
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

# Two chunks are near-duplicates if they share this part of their words and all of their numbers:
# "budget 5,000" and "budget 6,000" differ.
ALIKE = 0.9
_WORD = re.compile(r"\w+")
# Most relations that one hit shows.
MOST_RELATED = 32
# The relation that a `[[link]]` between notes stands for.
LINK = "see_also"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chunk that was found, with its scores. `rank` is the value by which chunks are sorted, and
    `score` is how likely the chunk answers the query. The scores are from 0 to 1, except `vector`,
    which is a cosine from -1 to 1.
    """

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
    """Neighbouring chunks of one document that form a hit, best first. `alike` is the number of
    near-duplicates in the same project and source that were left out.
    """

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
    """Groups chunks into hits, best first, until there are enough hits."""

    def __init__(self, *, max_results: int, max_tokens: int | None, joined: int) -> None:
        self._max_results = max_results
        self._max_tokens = max_tokens
        self._joined = joined
        self._at: dict[tuple[int, int], HitGroup] = {}
        self._group_words: list[tuple[frozenset[str], HitRow, HitGroup]] = []
        self._used_tokens = 0
        self.groups: list[HitGroup] = []

    @property
    def alike(self) -> int:
        """The number of chunks that were left out as near-duplicates of others."""
        return sum(group.alike for group in self.groups)

    def take(self, candidate: Candidate, row: HitRow) -> bool:
        """Add a chunk to a hit or start a new hit with it. Return True, or False if there are
        enough hits already.

        The first chunk is accepted even if it alone exceeds the token budget. A later one that does
        not fit is skipped.
        """
        place = candidate.place
        words = frozenset(_WORD.findall(row.text.lower()))
        # Count duplicates before the budget: they cost no tokens, and the count says how often the
        # same was noted.
        for said, other, group in self._group_words:
            if (other.project, other.source) == (row.project, row.source) and _alike(said, words):
                group.alike += 1
                return True
        if self._max_tokens is not None and self.groups and self._used_tokens + row.tokens > self._max_tokens:
            return True
        near = self._at.get((place.document, place.position - 1)) or self._at.get((place.document, place.position + 1))
        if near is None or len(near.candidates) == self._joined:
            if len(self.groups) == self._max_results:
                return False
            near = HitGroup()
            self.groups.append(near)
        near.candidates.append(candidate)
        self._at[(place.document, place.position)] = near
        self._group_words.append((words, row, near))
        self._used_tokens += row.tokens
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
    """Return the joined text of neighbouring chunks as it is in the document. Lines that two chunks
    share appear once.
    """
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
            # Otherwise the chunk begins within the line in which the previous one ends.
            text += "".join("\n" + line for line in lines[shared:]) if is_repeated else " " + row.text
    return text


@dataclass(slots=True)
class Factors:
    """The factors from which the rank of a chunk is computed."""

    relevance: float  # of both legs, each relative to its best
    votes: float  # from neighbouring chunks
    exact: float  # the chunk contains a name or phrase of the query exactly
    dated: float  # the chunk is of days that the query names
    source: float  # lowers transcripts
    evidence: Evidence | None = None  # the values behind the score, once computed
    score: float | None = None  # before it is made to fall from hit to hit (`HitScores`)
    order: float | None = None  # sort value in a rank other than by relevance
    page: float = 0.0  # the best rank of all, for a document that the query names
    is_pulled: bool = False  # added because it supersedes a hit

    @property
    def rank(self) -> float:
        return (self.relevance + self.votes) * self.dated * self.source + self.exact + self.page


def explain(
    asked: SearchQuestion, days: DayRange | None, legs: Legs, pieces: Sequence[int], factors: Mapping[int, Factors]
) -> dict[str, object]:
    """Return the explanation that `memory_search` shows: data about the whole search, and for each
    hit the factors of its best chunk. `pieces` are the ids of these chunks.
    """
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
            "page": found.page,
            "rank": found.rank,
            "terms": evidence.terms,
            "keyword": evidence.keyword,
            "vector": evidence.vector,
            "stated": evidence.stated,
            "held": evidence.held,
            "missing": evidence.missing,
            "unnamed": float(evidence.unnamed),
            "deviation": evidence.deviation,
            "everyday": evidence.everyday,
            "lead": evidence.lead,
            "few": evidence.few,
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
    """A note or document that is related to a hit. `direction` is "to" if the hit states the
    relation, and "from" if the other one states it.
    """

    relation: str
    direction: str
    note: NoteRow | LinkedRow


def relatives(
    store: Store, notes: Sequence[NoteRow], projects: frozenset[str] | None, classes: frozenset[str] | None
) -> dict[str, tuple[Relative, ...]]:
    """Return the related notes of each note, by note id. Only notes in these projects and trust
    classes (None for all) are returned.
    """
    identities = [note.id for note in notes]
    relations = store.notes.relations(identities, projects)
    ends = {end for relation in relations for end in (relation.note, relation.other)}
    named = store.notes.notes_with_ids(sorted(ends), projects)
    known = {identity: note for identity, note in named.items() if classes is None or note.class_ in classes}
    found: dict[str, list[Relative]] = {identity: [] for identity in identities}
    for relation in relations:
        for own, other, direction in ((relation.note, relation.other, "to"), (relation.other, relation.note, "from")):
            if own in found and other in known and other != own and len(found[own]) < MOST_RELATED:
                found[own].append(Relative(relation.kind, direction, known[other]))
    return {identity: tuple(others) for identity, others in found.items()}


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A result of a search: some lines of a document, with metadata and the scores that explain the
    rank. Scores are from 0 to 1, except `vector`, which is a cosine from -1 to 1.
    """

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
    alike: int = 0  # near-duplicates in the project that were left out
    document: int = 0
    note: NoteRow | None = None
    superseded_by: tuple[Supersession, ...] = ()
    supersedes: tuple[NoteRow, ...] = ()  # notes that match too, and are no hits since this one is newer
    related: tuple[Relative, ...] | None = None  # None: not requested
    order: float | None = None  # sort value in another rank; None: sorted by score
    class_: str = UNTRUSTED  # the lowest class of its chunks


@dataclass(frozen=True, slots=True)
class HitScores:
    """The scores that a hit shows. `score` is how likely it answers the query; `order` is the value
    by which hits are sorted if not by relevance.
    """

    score: float
    order: float | None = None


@dataclass(frozen=True, slots=True)
class Noted:
    """The metadata of the notes among the hits.

    Attributes:
        notes: the note in each document.
        succession: the graph of notes that supersede each other.
        below: for each document, the matching notes that it supersedes.
        related: the related notes by note id; None if the query did not request them.
        linked: the linked documents of each document.
    """

    notes: Mapping[int, NoteRow] = field(default_factory=dict)
    succession: NoteSuccession = field(default_factory=lambda: NoteSuccession(()))
    below: Mapping[int, Sequence[NoteRow]] = field(default_factory=dict)
    related: Mapping[str, tuple[Relative, ...]] | None = None
    linked: Mapping[int, Sequence[LinkedRow]] = field(default_factory=dict)

    def related_of(self, document: int) -> tuple[Relative, ...] | None:
        """Return the relations of a document, those that notes state before those from links.

        Return None if the query did not request them, or if the document is no note and has no
        links.
        """
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
        supersedes=tuple(noted.below.get(first.document, ())),
        related=noted.related_of(first.document),
        order=None if shown.order is None else round(shown.order, 4),
        class_=lowest(row.class_ for row in ordered),
    )
