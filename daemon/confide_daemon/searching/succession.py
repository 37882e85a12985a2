"""Which of the notes that a search found are superseded, by which others, and in what order they are shown for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from confide_daemon.store.protocol import NoteRow, Store, Supersession

# Links of a chain that are followed: notes that supersede each other further than that are told of by the next search.
MOST_LINKS = 16
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

    @classmethod
    def of(cls, store: Store, documents: Sequence[int], projects: frozenset[str] | None) -> Succession:
        """As far as notes of these projects tell."""
        links: list[Supersession] = []
        seen: set[int] = set()
        ahead = set(documents)
        for _ in range(MOST_LINKS):
            if not ahead:
                break
            found = store.supersessions(sorted(ahead), projects)
            links += found
            seen |= ahead
            ahead = {link.newer for link in found} - seen
        return cls(links)

    def __bool__(self) -> bool:
        return bool(self._newer)

    def by(self, document: int) -> tuple[Supersession, ...]:
        """What says of itself that it supersedes the document."""
        return tuple(self._newer.get(document, ()))

    def above(self, document: int) -> list[int]:
        """What has to stand above the document: all that supersede it, the nearest first. Notes of a circle supersede nothing in it."""
        return [newer for newer in self._reached(document) if document not in self._reached(newer)]

    def ahead_of(self, documents: Sequence[int]) -> list[int]:
        """What supersedes any of the documents and is not among them."""
        return list(dict.fromkeys(newer for one in documents for newer in self.above(one) if newer not in documents))

    def newest(self, documents: Sequence[int], beside: Sequence[int]) -> list[int]:
        """Those of the documents that nothing of them, nor of what stands beside them, supersedes."""
        present = {*documents, *beside}
        return [one for one in documents if present.isdisjoint(self.above(one))]

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
            ahead = [link.newer for one in ahead for link in self._newer.get(one, ()) if link.newer not in found]
            found.update(dict.fromkeys(ahead))
        return list(found)


def relatives(
    store: Store, notes: Sequence[NoteRow], projects: frozenset[str] | None
) -> dict[str, tuple[Relative, ...]]:
    """The notes of these projects that each of the notes is related with, by the id of the latter."""
    identities = [note.id for note in notes]
    relations = store.note_relations(identities, projects)
    ends = {end for relation in relations for end in (relation.note, relation.other)}
    known = store.notes_named(sorted(ends), projects)
    found: dict[str, list[Relative]] = {identity: [] for identity in identities}
    for relation in relations:
        for own, other, direction in ((relation.note, relation.other, "to"), (relation.other, relation.note, "from")):
            if own in found and other in known and other != own and len(found[own]) < MOST_RELATED:
                found[own].append(Relative(relation.kind, direction, known[other]))
    return {identity: tuple(others) for identity, others in found.items()}
