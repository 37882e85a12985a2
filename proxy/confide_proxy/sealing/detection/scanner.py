"""Finding credentials in a text: a cheap look first (`prefilter`), then the detectors, of which each begins with a search for its marks.

The cost grows with the text's length and nothing else: no expression may run further than the bound it names, so that a text made to be
hard (a megabyte of `eyJ`) costs no more than a multiple of any other. Nothing is imported or compiled before a text gives a reason to.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Final

from confide_crypto.sealing.placeholder import STANDIN
from confide_proxy.sealing.detection import decoding, plausibility
from confide_proxy.sealing.detection.decoding import View, visible
from confide_proxy.sealing.detection.finding import SecretFinding, resolved
from confide_proxy.sealing.detection.plausibility import is_unmistakable
from confide_proxy.sealing.detection.prefilter import (
    SHORTEST_TOKEN,
    gives_reason,
    is_telling,
    lower,
    plain,
)
from confide_proxy.sealing.detection.rules import assignments, cloud, languages, logins, phrases, tables, tokens
from confide_proxy.sealing.detection.rules.tokens import starts_word

_ESCAPES: Final = ("\\u00", "\\x", "&#", "%")
"""One of them may hide the word that gives a reason."""
_SHORTEST_RUN: Final = 16
_LONGEST_RUN: Final = 512
"""Of base64 and hex, which are undone and looked through."""
_SHORT_MARKS: Final = ("AKIA", "ASIA", "glpat-", "glrt-", "GOCSPX-", "whsec_")
"""Of tokens that are so short that neither half of one may be as long as the shortest token."""
_LEAST_REST: Final = 8
_FORTY: Final = 40
REPEATED_FROM: Final = 0.75
REPEATED_CHARS: Final = 8
"""A shorter password may be a word that stands elsewhere for something else."""
LONGEST_REPEATED: Final = 4096
_FEW: Final = 64
"""So many beginnings are searched for one by one, which is faster than a look at every character."""


def scan(text: str, least: float = 0.0) -> list[SecretFinding]:
    """The credentials in a text, in its order, none over another; also those that are hidden a little (`decoding`): by characters that
    nobody sees, by one step of an encoding, by a line end.

    `least`: the confidence (0 to 1) from which on they count; from 0.5 on, lone random strings are not even looked for.
    """
    if not text.isascii() and (shown := visible(text)):
        return [_moved(found, shown) for found in _scanned(shown.text, least)]
    return _scanned(text, least)


def _scanned(text: str, least: float) -> list[SecretFinding]:
    text = plain(text)
    lowered = lower(text)
    is_worth = gives_reason(lowered)
    found = _by_rules(text, lowered, least) if is_worth else []
    if is_worth:
        for whole in _emphasised(text):
            # Where its first part alone was found, the whole takes that one's place.
            found = [each for each in found if not whole.start <= each.start <= each.end <= whole.end]
            found = sorted((*found, *_outside(found, iter((whole,)))), key=lambda each: each.start)
    is_cut = "\n" in text and (is_worth or any(mark in text for mark in _SHORT_MARKS))
    if is_worth or any(mark in text for mark in _ESCAPES):
        found = sorted((*found, *_outside(found, _hidden(text, least))), key=lambda each: each.start)
    return _with_cut(text, found) if is_cut else found


def _by_rules(text: str, lowered: str, least: float) -> list[SecretFinding]:
    """Those that stand in the text as it is."""

    # In this order: of values that are found twice the first says of what kind their repetitions are.
    words = text.split()
    long = [word for word in words if len(word) >= SHORTEST_TOKEN]
    found = [
        *tokens.find(text, long),
        *tokens.find_secret_texts(text, lowered),
        *tokens.find_private_keys(text),
        *tokens.find_key_bodies(text, long),
        *tokens.find_jwts(text),
    ]
    if is_telling(lowered):  # most texts have no more than a long word, as a path with a date is
        found += [
            *logins.find_in_urls(text),
            *logins.find_in_headers(text, lowered),
            *logins.find(text, lowered),
            *logins.find_in_sayings(text, lowered),
            *assignments.find(text, lowered),
            *tables.find(text, lowered),
            *languages.find(text, lowered),
            *cloud.find_kubernetes(text, lowered),
        ]
    if any(each.kind == "aws-access-key-id" for each in found):
        found += cloud.find_aws_secrets(text, found)
    if any(len(word) >= _FORTY for word in long):
        found += cloud.find_lone_aws_secrets(text, long)
    found += phrases.find(lowered, words)
    if least <= plausibility.RANDOM_CONFIDENCE:
        found += plausibility.find_random(text)
    found = [each for each in found if each.confidence >= least]
    return resolved([*found, *_repeated(text, found)]) if found else []


def _hidden(text: str, least: float) -> Iterator[SecretFinding]:
    """Those that stand in it encoded."""

    sure = max(least, REPEATED_FROM)
    if view := decoding.unescaped(text, is_quoted=False):
        yield from (_moved(found, view) for found in _by_reason(view.text, sure))
    for view in decoding.encoded(text, _SHORTEST_RUN, _LONGEST_RUN):
        # What nothing gives away but its form is in there by chance, or a line of a key in a key.
        sure_of = (found for found in _by_reason(view.text, sure) if found.detector != "alone")
        yield from (_moved(found, view) for found in islice(sure_of, 1))


def _emphasised(text: str) -> Iterator[SecretFinding]:
    """Tokens, and secrets of our own, with marks of emphasis inside."""

    if view := decoding.unemphasised(text):
        for each in (*tokens.find(view.text), *tokens.find_secret_texts(view.text, lower(view.text))):
            if view.cut(each.start, each.end) is not None:
                yield _moved(each, view)


def _with_cut(text: str, found: list[SecretFinding]) -> list[SecretFinding]:
    """The same with those that a line end cuts in two; also where the first part alone is found, and what follows can only be the rest."""

    view = decoding.joined(text, SHORTEST_TOKEN)
    for each in tokens.find(view.text) if view else ():
        assert view is not None
        cut = view.cut(each.start, each.end)
        if cut is None:
            continue
        whole = _moved(each, view)
        first = bisect_right([one.end for one in found], whole.start)
        last = bisect_left([one.start for one in found], whole.end)
        is_rest = plausibility.is_random(view.text[cut : each.end], _LEAST_REST)
        if first == last or (is_rest and whole.start <= found[first].start and found[last - 1].end <= whole.end):
            found[first:last] = [whole]
    return found


def _by_reason(text: str, least: float) -> list[SecretFinding]:
    lowered = lower(text)
    return _by_rules(text, lowered, least) if gives_reason(lowered) else []


def _moved(found: SecretFinding, view: View) -> SecretFinding:
    return SecretFinding(found.kind, *view.span(found.start, found.end), found.confidence, found.detector, found.prefix)


def _outside(found: list[SecretFinding], hidden: Iterator[SecretFinding]) -> list[SecretFinding]:
    """The hidden ones that are nowhere over what stands in the text as it is."""

    starts = [each.start for each in found]

    def is_free(each: SecretFinding) -> bool:
        before = bisect_left(starts, each.end)
        return before == 0 or found[before - 1].end <= each.start

    return resolved([each for each in hidden if is_free(each)])


def outside(text: str, findings: Iterable[SecretFinding]) -> Iterator[SecretFinding]:
    """Those that touch nothing that is sealed or redacted already, as in `password=(sealed:…)` (PROTOCOL.md 10.4)."""
    sealed = [found.span() for found in STANDIN.finditer(text)]
    ends = [stop for _, stop in sealed]
    for finding in findings:
        behind = bisect_right(ends, finding.start)
        if behind == len(sealed) or sealed[behind][0] >= finding.end:
            yield finding


def _repeated(text: str, found: list[SecretFinding]) -> Iterator[SecretFinding]:
    """The same values where nothing says what they are: a password that is set in one line and used in another."""

    values: dict[str, SecretFinding] = {}
    for each in found:
        value = text[each.start : each.end]
        is_long = REPEATED_CHARS <= each.length <= LONGEST_REPEATED
        if each.confidence >= REPEATED_FROM and is_long and value not in values and is_unmistakable(value):
            values[value] = each
    if not values:
        return
    for start, end in Repeats(values).find(
        text, lambda at: starts_word(text, at), lambda at: not text[at : at + 1].isalnum()
    ):
        first = values[text[start:end]]
        yield SecretFinding(first.kind, start, end, first.confidence, "repeated", first.prefix)


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

        `begins, ends`: whether one may, at this place in the text.
        """
        behind = 0
        for at in self._starts(text):
            if at < behind or not begins(at):
                continue
            for length in self._lengths[text[at : at + REPEATED_CHARS]]:
                end = at + length
                if ends(end) and text[at:end] in self._values:
                    yield at, end
                    behind = end
                    break

    def _starts(self, text: str) -> Iterator[int] | list[int]:
        """Where one of the beginnings is, in order."""
        if len(self._lengths) > _FEW:
            return (at for at in range(len(text)) if text[at : at + REPEATED_CHARS] in self._lengths)
        starts = []
        for head in self._lengths:
            at = text.find(head)
            while at >= 0:
                starts.append(at)
                at = text.find(head, at + 1)
        return sorted(starts)
