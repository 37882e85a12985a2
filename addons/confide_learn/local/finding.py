"""What a judge has found worth keeping, or that it cannot say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

KINDS: Final = ("remember", "correction", "preference", "decision", "fix", "fact", "session-summary")
"""The last is of whole sessions, and no judge finds it."""
_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was learned.

    Attributes:
        text: self-contained, as it is kept.
        quote: the words of the transcript that it rests on, as they stand there.
        kind: of `KINDS`.
    """

    text: str
    quote: str
    kind: str


def words_of(text: str) -> list[str]:
    """Its words, to compare two texts by: case, marks and blanks make no difference."""
    return _WORD.findall(text.casefold())


class CannotJudgeError(Exception):
    """A judge is not there, answers too late or nonsense, or has no more calls today. Its text names no content."""
