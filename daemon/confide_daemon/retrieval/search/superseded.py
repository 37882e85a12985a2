"""Which of the notes that a search found are superseded, by which others, and in what order they are shown for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confide_daemon.store.rows import NoteRow, Supersession
from confide_daemon.store.store import Store

# Notes that a hit is said to be superseded by, the newest first; `memory_get` names all.
MOST_TOLD = 5
# Relations of one hit that are shown.
MOST_RELATED = 32


@dataclass(frozen=True, slots=True)
class Relative:
    """A note that a hit is related with; `direction` is "to" where the hit's note states it, "from" where the other one does."""

    relation: str
    direction: str
    note: NoteRow


class Succession:
    """What supersedes what, from the notes that were found to the newest ones. Documents stand for their notes."""

    def __init__(self, links: Sequence[Supersession]) -> None:
        self._newer: dict[int, list[Supersession]] = {}
        for link in links:
            self._newer.setdefault(link.older, []).append(link)
        # Notes of a circle supersede nothing in it: it is one, and these are put in order, what is newer first.
        self._circles = _circles({older: [link.newer for link in newer] for older, newer in self._newer.items()})
        self._circle_of = {document: number for number, circle in enumerate(self._circles) for document in circle}

    @classmethod
    def of(cls, store: Store, documents: Sequence[int], projects: frozenset[str] | None) -> Succession:
        """As far as notes of these projects tell."""
        return cls(store.notes.supersession_chains(documents, projects))

    def __bool__(self) -> bool:
        return bool(self._newer)

    def by(self, document: int) -> tuple[Supersession, ...]:
        """What says of itself that it supersedes the document."""
        return tuple(self._newer.get(document, ())[:MOST_TOLD])

    def above(self, document: int) -> list[int]:
        """What has to stand above the document: all that supersede it, the nearest first."""
        own = self._circle_of.get(document)
        return [newer for newer in self._reached(document) if self._circle_of[newer] != own]

    def ahead_of(self, documents: Sequence[int]) -> list[int]:
        """What supersedes any of the documents and is not among them."""
        present = set(documents)
        return list(dict.fromkeys(newer for one in documents for newer in self.above(one) if newer not in present))

    def newest(self, documents: Sequence[int], beside: Sequence[int]) -> list[int]:
        """Those of the documents that nothing of them, nor of what stands beside them, supersedes."""
        present = {*documents, *beside}
        # What is newer comes first, so that each circle is known before those below it.
        is_below: list[bool] = []
        for number, circle in enumerate(self._circles):
            others = {self._circle_of[link.newer] for one in circle for link in self._newer.get(one, ())} - {number}
            is_below.append(any(is_below[other] or not present.isdisjoint(self._circles[other]) for other in others))
        return [one for one in documents if one not in self._circle_of or not is_below[self._circle_of[one]]]

    def arranged(self, documents: Sequence[int]) -> list[int]:
        """The places of the documents, some of which may come again: in their order, but all that supersedes one directly before it."""
        ordered: dict[int, None] = {}

        def put(place: int) -> None:
            if place in ordered:
                return
            newer = set(self.above(documents[place]))
            # What stands above another one has fewer above itself, so this ends.
            for other, document in enumerate(documents):
                if document in newer:
                    put(other)
            ordered[place] = None

        for place in range(len(documents)):
            put(place)
        return list(ordered)

    def _reached(self, document: int) -> list[int]:
        found: dict[int, None] = {}
        ahead = [document]
        while ahead:
            nearest = dict.fromkeys(link.newer for one in ahead for link in self._newer.get(one, ()))
            ahead = [one for one in nearest if one not in found]
            found.update(dict.fromkeys(ahead))
        return list(found)


def _circles(newer: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """The strongly connected components of a graph, each behind those that it leads to (Tarjan, SIAM J. Comput. 1 (2), 1972)."""
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


def relatives(
    store: Store, notes: Sequence[NoteRow], projects: frozenset[str] | None
) -> dict[str, tuple[Relative, ...]]:
    """The notes of these projects that each of the notes is related with, by the id of the latter."""
    identities = [note.id for note in notes]
    relations = store.notes.relations(identities, projects)
    ends = {end for relation in relations for end in (relation.note, relation.other)}
    known = store.notes.named(sorted(ends), projects)
    found: dict[str, list[Relative]] = {identity: [] for identity in identities}
    for relation in relations:
        for own, other, direction in ((relation.note, relation.other, "to"), (relation.other, relation.note, "from")):
            if own in found and other in known and other != own and len(found[own]) < MOST_RELATED:
                found[own].append(Relative(relation.kind, direction, known[other]))
    return {identity: tuple(others) for identity, others in found.items()}
