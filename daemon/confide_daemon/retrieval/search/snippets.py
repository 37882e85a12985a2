"""From ranked pieces to hits: neighbours made one, the same said twice left out, within the budget of tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from confide_daemon.store.rows import HitRow, Place

# Two pieces say the same when they share so much of their words and all of their numbers: "budget 5,000" and "budget 6,000" differ.
ALIKE = 0.9
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A piece with its scores, each in 0 to 1 but the cosine in -1 to 1. `rank` orders, `score` is shown."""

    place: Place
    rank: float
    score: float
    vector: float | None
    keyword: float
    recency: float
    importance: float
    usage: float


@dataclass(slots=True)
class Group:
    """Pieces that stand beside each other, best first, and how many others of the project and source say the same."""

    candidates: list[Candidate] = field(default_factory=list)
    alike: int = 0

    @property
    def best(self) -> Candidate:
        """The piece whose score is shown."""
        return max(self.candidates, key=lambda candidate: candidate.score)

    @property
    def document(self) -> int:
        """Whose pieces they are."""
        return self.candidates[0].place.document

    def rows(self, rows: Mapping[int, HitRow]) -> list[HitRow]:
        """Its pieces in their order."""
        return sorted((rows[candidate.place.id] for candidate in self.candidates), key=lambda row: row.position)


class Grouping:
    """Takes pieces, best first, until there are enough hits."""

    def __init__(self, *, max_results: int, max_tokens: int | None, joined: int) -> None:
        self._max_results = max_results
        self._max_tokens = max_tokens
        self._joined = joined
        self._at: dict[tuple[int, int], Group] = {}
        self._said: list[tuple[frozenset[str], HitRow, Group]] = []
        self._spent = 0
        self.groups: list[Group] = []

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
            near = Group()
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
