"""What somebody has probably meant: the words that people try for a command, and typing errors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

_CLOSE: Final = 0.75
"""Of `difflib`: lets a letter more, less or swapped pass in a word of four; `stop` and `store` have 0.67, and mean opposite things."""
_MOST_CHARS: Final = 40
"""No command is longer, and the comparison takes quadratic time."""
_SHORTEST_BEGINNING: Final = 3
"""Letters that are taken for the beginning of a word; two are where just the third is missing."""

OtherWords = Mapping[str, str | tuple[str, ...]]
"""What people type, and the command or option that does it, or several: the first that there is where they type it."""
Words = Mapping[str, str]
"""The same as it is written down: a command or an option, and the words that people try for it."""


def read_words(words: Words) -> OtherWords:
    """What each word stands for; of a word of several, the first that is written down goes before the others."""
    found: dict[str, tuple[str, ...]] = {}
    for name, tried in words.items():
        for word in tried.split():
            found[word] = (*found.get(word, ()), name)
    return found


def meant(word: str, names: Collection[str], other_words: OtherWords) -> str | None:
    """Which of these names `word` stands for: by the other words for it, or the one that is spelled nearly so. None where there is none."""
    word = word.strip().lower()[:_MOST_CHARS]
    known: dict[str, str] = {}
    for other, named in other_words.items():
        there = (one for one in ((named,) if isinstance(named, str) else named) if one in names)
        if (name := next(there, None)) is not None:
            known[other] = name
    known |= {name: name for name in names}
    if word in known:
        return known[word]
    if swapped := _swapped(word) & {*names}:
        return min(swapped)
    if begun := sorted((name for name in names if name.startswith(word)), key=len):
        is_enough = len(word) >= min(_SHORTEST_BEGINNING, len(begun[0]) - 1)
        if is_enough and all(name.startswith(begun[0]) for name in begun):
            return begun[0]
        return None  # of several none is likelier
    import difflib  # late: nothing is misspelled on the start path

    near = difflib.get_close_matches(word, known, n=1, cutoff=_CLOSE)
    return known[near[0]] if near else None


def _swapped(word: str) -> set[str]:
    """The word with two neighbouring letters in each other's places: in one of three letters that is more than `_CLOSE` forgives."""
    return {word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in range(len(word) - 1)}
