"""Groups of near-duplicates among the notes of one place: each around its newest note, to which all others of it are near.

Not a transitive closure: a chain of notes, each like the one before, can end far from where it began. It knows no store; what it is
given it holds in memory, and its own matrices are of BLOCK rows at a time.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from confide_daemon.embed.protocol import Vectors
from confide_daemon.notes.similarity import Compared, Likeness, likeness

BLOCK = 256
# Notes of several pieces can be nearer than their centres are.
SLACK = 0.1
# Words that so many notes share say nothing of two of them.
MOST_SHARING = 200
# Notes in one group.
MOST_IN_GROUP = 64


@dataclass(frozen=True, slots=True)
class Group:
    """Notes by their places in what was given; each of `others` with how near it is to `newest`."""

    newest: int
    others: tuple[tuple[int, Likeness], ...]


def groups(notes: Sequence[Compared], threshold: float) -> Iterator[list[Group]]:
    """The groups among the notes, which are given the newest first; step by step, a list for each BLOCK of them."""
    centres = _centres(notes)
    is_single = np.array([len(note.weights) == 1 and not note.is_long for note in notes], dtype=np.bool_)
    sharing = _Sharing([frozenset(note.words.split()) for note in notes], threshold)
    taken = np.zeros(len(notes), dtype=np.bool_)
    for start in range(0, len(notes), BLOCK):
        found: list[Group] = []
        cosines = centres[start : start + BLOCK] @ centres[start:].T
        for row, place in zip(cosines, range(start, len(notes)), strict=False):
            if taken[place]:
                continue
            least = np.where(is_single[start:] & is_single[place], threshold - 1e-6, threshold - SLACK)
            near = {start + int(at) for at in np.flatnonzero(row >= least)} | sharing.with_words_of(place)
            others: list[tuple[int, Likeness]] = []
            for other in sorted(near):
                if other <= place or taken[other] or len(others) == MOST_IN_GROUP:
                    continue
                if alike := likeness(notes[place], notes[other], threshold):
                    others.append((other, alike))
            if others:
                taken[[place, *(other for other, _ in others)]] = True
                found.append(Group(place, tuple(others)))
        yield found


def _centres(notes: Sequence[Compared]) -> Vectors:
    """A row for each note; zero where it has no vectors, so that it is near to none."""
    rows = [note.centre for note in notes]
    dimensions = next((len(row) for row in rows if row is not None), 1)
    centres = np.zeros((len(notes), dimensions), dtype=np.float32)
    for centre, row in zip(centres, rows, strict=True):
        if row is not None:
            centre[:] = row
    return centres


class _Sharing:
    """Which notes may have nearly the same words, by their rarest ones.

    Of two sets with a Jaccard index of j each must hold one of the (1 - j) |set| + 1 rarest words of the other (prefix filtering: Bayardo,
    Ma and Srikant, "Scaling up all pairs similarity search", WWW 2007), so that few notes meet at all.
    """

    def __init__(self, sets: Sequence[frozenset[str]], threshold: float) -> None:
        counts = Counter(word for words in sets for word in words)
        # A changed word is one less that both have and one more of all: letters and words agree about so well.
        jaccard = max(0.5, 2 * threshold - 1.1)
        self._rarest = []
        self._holders: defaultdict[str, list[int]] = defaultdict(list)
        for place, words in enumerate(sets):
            ordered = sorted(words, key=lambda word: (counts[word], word))
            rarest = ordered[: len(ordered) - math.ceil(jaccard * len(ordered)) + 1]
            self._rarest.append(rarest)
            for word in rarest:
                self._holders[word].append(place)

    def with_words_of(self, place: int) -> set[int]:
        """The notes that share a rare word with this one."""
        holders = [self._holders[word] for word in self._rarest[place]]
        return {other for held in holders if len(held) <= MOST_SHARING for other in held}
