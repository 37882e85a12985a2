"""Search for credentials in a text: a cheap check first (`prefilter`), then the detectors, each of
which starts from its marks.

The cost is linear in the length of the text: every expression is bounded, so a hostile text (a
megabyte of `eyJ`) costs at most a constant factor more. Nothing is imported or compiled before a
text needs it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Final

from confide_crypto.sealing.placeholder import STANDIN
from confide_proxy.sealing.detection import decoding, plausibility, wallets
from confide_proxy.sealing.detection.decoding import View, visible
from confide_proxy.sealing.detection.finding import SecretFinding, resolve_overlaps
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
"""Escapes that may hide a mark."""
_SHORTEST_RUN: Final = 16
_LONGEST_RUN: Final = 512
"""Longest run of base64 or hex, in characters, that is decoded and searched."""
_SHORT_MARKS: Final = ("AKIA", "ASIA", "glpat-", "glrt-", "GOCSPX-", "whsec_")
"""Marks of tokens so short that neither half of one may reach SHORTEST_TOKEN."""
_LEAST_REST: Final = 8
_FORTY: Final = 40
_SOLANA: Final = "solana"
REPEATED_FROM: Final = 0.75
REPEATED_CHARS: Final = 8
"""Shortest value that is searched elsewhere in the text. A shorter password may be an ordinary
word.
"""
LONGEST_REPEATED: Final = 4096
_FEW: Final = 64
"""Number of starts up to which searching for each is faster than checking every position."""


def scan(text: str, least: float = 0.0) -> list[SecretFinding]:
    """Return the credentials in a text, in order and without overlaps.

    Lightly hidden ones are found too (`decoding`): behind invisible characters, one level of
    encoding, or a line break. `least` is the lowest confidence (0 to 1) that counts; from 0.5 on,
    lone random strings aren't searched at all.
    """
    if not text.isascii() and (shown := visible(text)):
        return [_map_back(found, shown) for found in _scan_clear(shown.text, least)]
    return _scan_clear(text, least)


def _scan_clear(text: str, least: float) -> list[SecretFinding]:
    text = plain(text)
    lowered = lower(text)
    is_worth = gives_reason(lowered)
    found = _by_rules(text, lowered, least) if is_worth else []
    if is_worth:
        for whole in _scan_emphasised(text):
            # A finding with emphasis marks inside replaces those of its parts.
            found = [each for each in found if not whole.start <= each.start <= each.end <= whole.end]
            found = sorted((*found, *_outside(found, iter((whole,)))), key=lambda each: each.start)
    is_cut = "\n" in text and (is_worth or any(mark in text for mark in _SHORT_MARKS))
    if is_worth or any(mark in text for mark in _ESCAPES):
        found = sorted((*found, *_outside(found, _scan_encoded(text, least))), key=lambda each: each.start)
    return _with_cut(text, found) if is_cut else found


def _by_rules(text: str, lowered: str, least: float) -> list[SecretFinding]:
    """Return the findings of all detectors in the text as it is."""

    # The order matters: for a value found twice, the first finding decides the kind of its
    # repetitions.
    words = text.split()
    long = [word for word in words if len(word) >= SHORTEST_TOKEN]
    found = [
        *tokens.find(text, long),
        *tokens.find_secret_texts(text, lowered),
        *tokens.find_private_keys(text),
        *tokens.find_key_bodies(text, long),
        *tokens.find_jwts(text),
        *wallets.find_keys(text, long),
    ]
    if is_telling(lowered):  # most texts have only a long word, such as a dated path
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
    if _SOLANA in lowered:  # what it calls a token has an address, which no name separates from a credential
        found = [
            each for each in found if each.kind != "token" or not wallets.is_public_key(text[each.start : each.end])
        ]
    return resolve_overlaps([*found, *_find_repeated(text, found)]) if found else []


def _scan_encoded(text: str, least: float) -> Iterator[SecretFinding]:
    """Yield findings in encoded parts of the text."""

    sure = max(least, REPEATED_FROM)
    if view := decoding.unescape(text, is_quoted=False):
        yield from (_map_back(found, view) for found in _by_reason(view.text, sure))
    for view in decoding.encoded_runs(text, _SHORTEST_RUN, _LONGEST_RUN):
        # A finding by form alone is accidental in decoded data, or a line of a key inside a key.
        sure_of = (found for found in _by_reason(view.text, sure) if found.detector != "alone")
        yield from (_map_back(found, view) for found in islice(sure_of, 1))


def _scan_emphasised(text: str) -> Iterator[SecretFinding]:
    """Yield tokens, and Confide's own secrets, with emphasis marks inside."""

    if view := decoding.strip_emphasis(text):
        for each in (*tokens.find(view.text), *tokens.find_secret_texts(view.text, lower(view.text))):
            if view.cut(each.start, each.end) is not None:
                yield _map_back(each, view)


def _with_cut(text: str, found: list[SecretFinding]) -> list[SecretFinding]:
    """Add the findings that a line break splits. If only the first part was found and the rest
    looks random, the whole replaces it.
    """

    view = decoding.join_lines(text, SHORTEST_TOKEN)
    for each in tokens.find(view.text) if view else ():
        assert view is not None
        cut = view.cut(each.start, each.end)
        if cut is None:
            continue
        whole = _map_back(each, view)
        first = bisect_right([one.end for one in found], whole.start)
        last = bisect_left([one.start for one in found], whole.end)
        is_rest = plausibility.is_random(view.text[cut : each.end], _LEAST_REST)
        if first == last or (is_rest and whole.start <= found[first].start and found[last - 1].end <= whole.end):
            found[first:last] = [whole]
    return found


def _by_reason(text: str, least: float) -> list[SecretFinding]:
    lowered = lower(text)
    return _by_rules(text, lowered, least) if gives_reason(lowered) else []


def _map_back(found: SecretFinding, view: View) -> SecretFinding:
    return SecretFinding(found.kind, *view.span(found.start, found.end), found.confidence, found.detector, found.prefix)


def _outside(found: list[SecretFinding], hidden: Iterator[SecretFinding]) -> list[SecretFinding]:
    """Return the hidden findings that overlap no finding in the text as it is."""

    starts = [each.start for each in found]

    def is_free(each: SecretFinding) -> bool:
        before = bisect_left(starts, each.end)
        return before == 0 or found[before - 1].end <= each.start

    return resolve_overlaps([each for each in hidden if is_free(each)])


def outside(text: str, findings: Iterable[SecretFinding]) -> Iterator[SecretFinding]:
    """Yield the findings that do not overlap a placeholder, such as `(sealed:…)` in a text that is
    sealed already (PROTOCOL.md 10.4).
    """
    sealed = [found.span() for found in STANDIN.finditer(text)]
    ends = [stop for _, stop in sealed]
    for finding in findings:
        behind = bisect_right(ends, finding.start)
        if behind == len(sealed) or sealed[behind][0] >= finding.end:
            yield finding


def _find_repeated(text: str, found: list[SecretFinding]) -> Iterator[SecretFinding]:
    """Yield further occurrences of found values: a password that is set in one line and used in
    another.
    """

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
    """A search for values that are already known to be credentials, wherever a text repeats them.
    Values shorter than `REPEATED_CHARS` (8 characters) are ignored.
    """

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
        """Yield the spans of the values, in order and without overlaps; the longest of those that
        begin at the same position.

        `begins` and `ends` return True if a value may begin or end at a position in the text.
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
        """Return the positions at which a value may begin, in order."""
        if len(self._lengths) > _FEW:
            return (at for at in range(len(text)) if text[at : at + REPEATED_CHARS] in self._lengths)
        starts = []
        for head in self._lengths:
            at = text.find(head)
            while at >= 0:
                starts.append(at)
                at = text.find(head, at + 1)
        return sorted(starts)
