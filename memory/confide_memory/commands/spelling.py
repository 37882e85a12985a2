"""Suggestions for mistyped commands and options, from known alternative words and similar
spellings.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

_CLOSE: Final = 0.75
"""`difflib` cutoff: allows a letter more, less or swapped in a word of four; `stop` and `store`
have 0.67, and opposite meanings.
"""
_MOST_CHARS: Final = 40
"""No command is longer, and the comparison takes quadratic time."""
_SHORTEST_BEGINNING: Final = 3
"""Letters that count as the beginning of a word; two are enough if only the third is missing."""

OtherWords = Mapping[str, str | tuple[str, ...]]
"""Alternative words, each with its command or option, or with several: the first that exists where
it is typed.
"""
Words = Mapping[str, str]
"""The same mapping as it is declared: a command or an option, and its alternative words."""


def read_words(words: Words) -> OtherWords:
    """Return for each alternative word the commands or options that it can mean, in the order in
    which they were declared.
    """
    found: dict[str, tuple[str, ...]] = {}
    for name, tried in words.items():
        for word in tried.split():
            found[word] = (*found.get(word, ()), name)
    return found


def nearest_name(word: str, names: Collection[str], other_words: OtherWords) -> str | None:
    """Return the command or option in `names` that `word` probably means, by an alternative word or
    a similar spelling. None if it is not clear.
    """
    word = word.strip().lower()[:_MOST_CHARS]
    known: dict[str, str] = {}
    for other, named in other_words.items():
        there = (one for one in ((named,) if isinstance(named, str) else named) if one in names)
        if (name := next(there, None)) is not None:
            known[other] = name
    known |= {name: name for name in names}
    if word in known:
        return known[word]
    if swapped := _swap_letters(word) & {*names}:
        return min(swapped)
    if begun := sorted((name for name in names if name.startswith(word)), key=len):
        is_enough = len(word) >= min(_SHORTEST_BEGINNING, len(begun[0]) - 1)
        if is_enough and all(name.startswith(begun[0]) for name in begun):
            return begun[0]
        return None  # several names fit equally well
    import difflib  # imported here, since a correct command does not need it

    near = difflib.get_close_matches(word, known, n=1, cutoff=_CLOSE)
    return known[near[0]] if near else None


def _swap_letters(word: str) -> set[str]:
    """Return the word with each pair of neighbouring letters swapped: in a word of three letters,
    `_CLOSE` does not allow that.
    """
    return {word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in range(len(word) - 1)}
