"""Tokens of a known form (`patterns`): found by their mark, checked by their expression, and random enough to be real."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from confide_proxy.secrets.detector import SHORTEST_TOKEN
from confide_proxy.secrets.finding import Finding
from confide_proxy.secrets.patterns import MARKED, PREFIXED, Marked, Prefixed
from confide_proxy.secrets.placeholders import is_sample
from confide_proxy.secrets.randomness import is_wordy

_ESCAPED: Final = frozenset("nrtb")
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_DISCORD: Final = r"(?<![\w.-])[MNO][A-Za-z\d_-]{23,25}\.[A-Za-z\d_-]{6}\.[A-Za-z\d_-]{27,38}(?![\w.-])"


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression)


def find(text: str) -> Iterator[Finding]:
    """Every token in the text; they may overlap."""
    # A search for each mark in the whole text would cost more than all else: the words that are long enough are a small part of most texts.
    words = "\n".join([word for word in text.split() if len(word) >= SHORTEST_TOKEN])
    if not words:
        return
    for pattern in PREFIXED:
        for mark in pattern.marks:
            if mark in words:
                yield from _prefixed(text, pattern, mark, text.find(mark))
    for marked in MARKED:
        if marked.mark in words:
            yield from _marked(text, marked)
    if "iscord" in text or "DISCORD" in text:
        # No part of its tokens is the same in all of them: only beside the name are they looked for.
        for match in _compiled(_DISCORD).finditer(text):
            if not is_wordy(match[0]):
                yield Finding("discord-token", match.start(), match.end(), 0.95, "token")


def _prefixed(text: str, pattern: Prefixed, mark: str, at: int) -> Iterator[Finding]:
    expression = _compiled(rf"{pattern.rest}(?![A-Za-z0-9])")
    while at >= 0:
        begin = at + len(mark)
        match = expression.match(text, begin) if starts_word(text, at) else None
        if match is None:
            at = text.find(mark, at + 1)
            continue
        if match.re.groups:
            start, end, prefix = match.start(1), match.end(1), ""
        else:
            start, end, prefix = at, match.end(), mark
        rest = text[begin:end]
        # Digits enough are no words; where a form has few or none, names that begin alike (`npm_package_config`) are told by their letters.
        is_name = not rest.isupper() and sum(c.isdigit() for c in rest) * 10 < len(rest) and is_wordy(rest)
        if not is_sample(rest) and not is_name:
            yield Finding(pattern.kind, start, end, pattern.confidence, "token", prefix)
        at = text.find(mark, match.end())


def _marked(text: str, pattern: Marked) -> Iterator[Finding]:
    expression = _compiled(rf"{pattern.expression}(?![A-Za-z0-9])")
    at = text.find(pattern.mark)
    while at >= 0:
        matches = (expression.match(text, at - before) for before in pattern.before if before <= at)
        match = next((each for each in matches if each and starts_word(text, each.start())), None)
        if match is None:
            at = text.find(pattern.mark, at + 1)
            continue
        start, end = match.span(match.re.groups)
        if not is_sample(text[start:end]):
            yield Finding(pattern.kind, start, end, pattern.confidence, "token")
        at = text.find(pattern.mark, match.end())


def starts_word(text: str, at: int) -> bool:
    """Whether a word may begin here: behind something else than a letter, digit or `_`, or behind an escape such as `\\n` and `%3D`."""
    if at == 0 or not ((before := text[at - 1]).isalnum() or before == "_"):
        return True
    if at > 1 and before in _ESCAPED and text[at - 2] == "\\":
        return True
    return at > 2 and text[at - 3] == "%" and {before, text[at - 2]} <= _HEX
