"""What somebody has probably meant: the words that people try for a command, and typing errors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

_CLOSE: Final = 0.75
"""Of `difflib`: lets a letter more, less or swapped pass in a word of four; `stop` and `store` have 0.67, and mean opposite things."""
_MOST_CHARS: Final = 40
"""No command is longer, and the comparison takes quadratic time."""


OtherWords = Mapping[str, str | tuple[str, ...]]
"""What people type, and the command that does it, or several: the first that there is where they type it."""


def meant(word: str, commands: Collection[str], other_words: OtherWords) -> str | None:
    """The command that stands for `word`: by the other words for it, or the one that is spelled nearly so. None where there is none."""
    word = word.strip().lower()[:_MOST_CHARS]
    known: dict[str, str] = {}
    for other, named in other_words.items():
        there = (one for one in ((named,) if isinstance(named, str) else named) if one in commands)
        if (command := next(there, None)) is not None:
            known[other] = command
    known |= {command: command for command in commands}
    if word in known:
        return known[word]
    import difflib  # late: nothing is misspelled on the start path

    near = difflib.get_close_matches(word, known, n=1, cutoff=_CLOSE)
    return known[near[0]] if near else None
