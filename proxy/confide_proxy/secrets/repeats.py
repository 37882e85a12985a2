"""The same values again, anywhere in a text: one walk for all of them, however many they are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final

from confide_proxy.secrets.detector import REPEATED_CHARS

_FEW: Final = 64
"""So many beginnings are searched for one by one, which is faster than a look at every character."""


class Repeats:
    """Values to be found again. Those of less than REPEATED_CHARS are not."""

    def __init__(self, values: Collection[str]) -> None:
        self._values = frozenset(values)
        lengths: dict[str, set[int]] = {}
        for value in self._values:
            if len(value) >= REPEATED_CHARS:
                lengths.setdefault(value[:REPEATED_CHARS], set()).add(len(value))
        self._lengths = {head: sorted(found, reverse=True) for head, found in lengths.items()}

    def find(
        self,
        text: str,
        begins: Callable[[int], bool] = lambda _at: True,
        ends: Callable[[int], bool] = lambda _at: True,
    ) -> Iterator[tuple[int, int]]:
        """Where they stand, in order, none over another; of those that begin at one place the longest.

        Args:
            begins, ends: whether one may, at this place in the text.
        """
        behind = 0
        for at in self._places(text):
            if at < behind or not begins(at):
                continue
            for length in self._lengths[text[at : at + REPEATED_CHARS]]:
                end = at + length
                if ends(end) and text[at:end] in self._values:
                    yield at, end
                    behind = end
                    break

    def _places(self, text: str) -> Iterator[int] | list[int]:
        """Where one of the beginnings is, in order."""
        if len(self._lengths) > _FEW:
            return (at for at in range(len(text)) if text[at : at + REPEATED_CHARS] in self._lengths)
        places = []
        for head in self._lengths:
            at = text.find(head)
            while at >= 0:
                places.append(at)
                at = text.find(head, at + 1)
        return sorted(places)
