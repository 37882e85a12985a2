"""The checks that every finding of a judge must pass, since a judge may be slow, wrong, or lie. No
function has side effects.

A finding needs a quote that occurs verbatim in the transcript: in one message of the user or the
agent, or in the message of a command that failed. A finding without one is dropped, however
plausible it sounds.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from confide_learn.local.exchanges import ExchangeMessage, LearnedExchange, typed_part
from confide_memory.classes import hostile
from confide_memory.tools.words import UNSPACED

SUMMARY: Final = "session-summary"
"""Kind of the note about a whole session, which no judge produces."""
KINDS: Final = ("remember", "correction", "preference", "decision", "fix", "fact", SUMMARY)
_WORD: Final = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")
"""A word; in scripts without blanks between words, such as Thai and Han, each letter."""


@dataclass(frozen=True, slots=True)
class LearnedFinding:
    """A finding of a judge: a text that is worth keeping.

    Attributes:
        text: the text of the note, which can be understood alone.
        quote: verbatim words of the transcript that support it.
        kind: one of `KINDS`.
    """

    text: str
    quote: str
    kind: str


def words_of(text: str) -> list[str]:
    """Split a text into words for comparison, ignoring case, punctuation and spaces."""
    return _WORD.findall(text.casefold())


class CannotJudgeError(Exception):
    """A judge cannot be used, is too slow, gives an invalid answer, or has used up its calls of the
    day. The message contains no content of the session.
    """


MAX_CHARS: Final = 500
MAX_SUMMARY_CHARS: Final = 8_000
"""Most characters of a session's note that the user has edited."""
MAX_FINDINGS: Final = 5
"""Most findings of a batch."""
ALIKE: Final = 0.9
_LEAST_WORDS: Final = 3
_LEAST_QUOTE_CHARS: Final = 12
_LEAST_QUOTE_WORDS: Final = 3
_BLANKS: Final = re.compile(r"\s+")
_TOPICS: Final = re.compile(r"\n\s*\n|^#{1,6} |^\s*(?:[-*•]|\d+[.)]) ", re.MULTILINE)
"""A blank line, a heading or a list, which indicate more than one topic."""
_OURS: Final = re.compile(r"confide-memory|hook_context|system-reminder|\[tool |\(redacted:", re.IGNORECASE)
"""Text that a program inserted into the conversation, a tool call, or a placeholder of a secret."""
_STEERING: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def most_chars(kind: str) -> int:
    """Return the highest number of characters in a text of this kind that the user enters instead
    of the suggested one.
    """
    return MAX_SUMMARY_CHARS if kind == SUMMARY else MAX_CHARS


def check_findings(findings: Iterable[LearnedFinding], window: Sequence[LearnedExchange]) -> list[LearnedFinding]:
    """Return the findings that pass all checks, at most `MAX_FINDINGS`, with their texts on one
    line.
    """
    messages = [_flat(_own(said)) for exchange in window for said in exchange.messages]
    kept: list[LearnedFinding] = []
    for finding in findings:
        text, quote = _flat(_STEERING.sub("", finding.text)), _flat(finding.quote)
        if finding.kind not in KINDS or _TOPICS.search(finding.text.strip()):
            continue
        if not text or len(text) > MAX_CHARS or len(words_of(text)) < _LEAST_WORDS or _OURS.search(text):
            continue
        if not is_quoted(quote, messages) or _OURS.search(quote):
            continue
        if hostile.is_hostile(text):
            continue
        if any(likeness(text, other.text) >= ALIKE for other in kept):
            continue
        kept.append(LearnedFinding(text, quote, finding.kind))
        if len(kept) == MAX_FINDINGS:
            break
    return kept


def is_quoted(quote: str, messages: Iterable[str]) -> bool:
    """Return True if the quote occurs in one of the messages, ignoring spaces, and is long enough
    to be meaningful.
    """
    flat = _flat(quote)
    if len(flat) < _LEAST_QUOTE_CHARS or len(words_of(flat)) < _LEAST_QUOTE_WORDS:
        return False
    return any(flat in message for message in messages)


def likeness(one: str, other: str) -> float:
    """Compare the word sequences of two texts; return a similarity from 0 to 1. A similarity below
    `ALIKE` may be returned as 0.
    """
    mine, others = words_of(one), words_of(other)
    total = len(mine) + len(others)
    if not total or 2 * min(len(mine), len(others)) < ALIKE * total or 2 * len({*mine} & {*others}) < len({*mine}):
        return 0.0  # most pairs end here, at a twentieth of the cost of the full comparison
    matcher = difflib.SequenceMatcher(None, mine, others, autojunk=False)
    return matcher.ratio() if matcher.quick_ratio() >= ALIKE else 0.0


def is_a_persons(finding: LearnedFinding, window: Sequence[LearnedExchange]) -> bool:
    """Return True if the quote of the finding is from a message of the user."""
    return is_quoted(finding.quote, [_flat(typed_part(exchange.user)) for exchange in window])


def is_of_output(finding: LearnedFinding, window: Sequence[LearnedExchange]) -> bool:
    """Return True if the quote of the finding is from the output of a tool, which third parties may
    have written.
    """
    return is_quoted(finding.quote, [_flat(said.error) for exchange in window for said in exchange.messages])


def _own(said: ExchangeMessage) -> str:
    if said.role == "call":
        return said.error
    return typed_part(said.text) if said.role == "user" else said.text


def _flat(text: str) -> str:
    return _BLANKS.sub(" ", text).strip()
