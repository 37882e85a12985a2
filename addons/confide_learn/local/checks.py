"""What a judge has found worth keeping, and what every finding has to pass, whoever found it: a judge may be slow, wrong, or lie. Pure.

A finding rests on a quote that stands in the transcript as it is said to, in one message of a person or of the agent. Without one it is
dropped, however right it sounds.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from confide_learn.local.exchanges import ExchangeMessage, LearnedExchange, typed
from confide_memory.classes import hostile

SUMMARY: Final = "session-summary"
"""Of a whole session; no judge finds it."""
KINDS: Final = ("remember", "correction", "preference", "decision", "fix", "fact", SUMMARY)
_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class LearnedFinding:
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


MAX_CHARS: Final = 500
MAX_SUMMARY_CHARS: Final = 8_000
"""Of a note that a person has edited."""
MAX_FINDINGS: Final = 5
"""Of a batch."""
ALIKE: Final = 0.9
_LEAST_WORDS: Final = 3
_LEAST_QUOTE_CHARS: Final = 12
_LEAST_QUOTE_WORDS: Final = 3
_BLANKS: Final = re.compile(r"\s+")
_TOPICS: Final = re.compile(r"\n\s*\n|^#{1,6} |^\s*(?:[-*•]|\d+[.)]) ", re.MULTILINE)
"""A blank line, a heading, a list: more than one topic."""
_OURS: Final = re.compile(r"confide-memory|hook_context|system-reminder|\[tool |\(redacted:", re.IGNORECASE)
"""What was put into the conversation, is a call, or stands for what never leaves."""
_STEERING: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def most_chars(kind: str) -> int:
    """How long a text of that kind may be that a person writes in its place."""
    return MAX_SUMMARY_CHARS if kind == SUMMARY else MAX_CHARS


def checked(findings: Iterable[LearnedFinding], window: Sequence[LearnedExchange]) -> list[LearnedFinding]:
    """Those that may be kept, as one line each, at most `MAX_FINDINGS`."""
    messages = [_flat(_own(said)) for exchange in window for said in exchange.said if said.role != "call"]
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
    """Whether a quote stands in one of the messages, blanks aside, and says enough to be one."""
    flat = _flat(quote)
    if len(flat) < _LEAST_QUOTE_CHARS or len(words_of(flat)) < _LEAST_QUOTE_WORDS:
        return False
    return any(flat in message for message in messages)


def likeness(one: str, other: str) -> float:
    """How much two texts have in common by their words in order: from `ALIKE` to 1, or 0 for less."""
    mine, others = words_of(one), words_of(other)
    total = len(mine) + len(others)
    if not total or 2 * min(len(mine), len(others)) < ALIKE * total or 2 * len({*mine} & {*others}) < len({*mine}):
        return 0.0  # most pairs, and this is a twentieth of what the rest costs
    matcher = difflib.SequenceMatcher(None, mine, others, autojunk=False)
    return matcher.ratio() if matcher.quick_ratio() >= ALIKE else 0.0


def is_a_persons(finding: LearnedFinding, window: Sequence[LearnedExchange]) -> bool:
    """Whether the quote of a finding is what a person said."""
    return is_quoted(finding.quote, [_flat(typed(exchange.user)) for exchange in window])


def _own(said: ExchangeMessage) -> str:
    return typed(said.text) if said.role == "user" else said.text


def _flat(text: str) -> str:
    return _BLANKS.sub(" ", text).strip()
