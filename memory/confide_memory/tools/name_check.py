"""Checks if the names and numbers of a query occur in a chunk of text, whole or as part of a longer
name.

A text without the name that a query asks for is not a certain answer, however much else it has in
common: ERR_CONN_41 is not ERR_CONN_42, port 8080 is not port 808, and Anna Berg is not Anna Lind. The
keyword index finds the words of a name in sequence; this module also checks where the name ends.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Collection, Sequence
from itertools import islice

from confide_memory.documents import STOP_WORDS
from confide_memory.tools.days import DayRange
from confide_memory.tools.question import DATE, MOST_OF_IT, PARTLY, SearchQuestion, Term
from confide_memory.tools.words import (
    COMPOUND,
    GROUPED,
    OF_NUMBERS,
    PLAIN,
    SHORT_HASH,
    fold,
    humps,
    is_hash,
    join_decimals,
    join_groups,
    parts,
    ungroup,
)

# Characters between the words of a name at most: getUserById, get_user_by_id, Get User -- By Id.
MOST_BETWEEN = 3
# Places of one name that are looked at in a chunk and its neighbours.
MOST_PLACES = 64
# The least share that is reported of a lacking name: more than `PARTLY`.
LEAST_LACKING = 0.2
# How alike two words are, at least, that may be one in two forms or spellings, such as "actions" for
# "action": twice the letters in common by the letters of both.
SAME_WORD = 0.7
_WORD = r"(?<![^\W_])[^\W\d_]{2,40}(?![^\W_])"
_IN_RANGES = 4  # digits
_RANGE = re.compile(rf"(?<![\w.,:/-])(\d{{1,{_IN_RANGES}}}) ?[-\u2013] ?(\d{{1,{_IN_RANGES}}})(?![\w:/]|[-.,]\d)")
_HEX = re.compile(r"[0-9a-f]{7,}")
_VERSION = re.compile(r"v?[0-9]")


class NameCheck:
    """Checks chunks of text for the names and numbers of one query.

    Attributes:
        terms: the terms of the query that are names or numbers. If the query has no such terms and
            no days, no chunk lacks anything.
    """

    def __init__(self, asked: SearchQuestion) -> None:
        numbers = [len(term.ways[0][0]) for term in asked.terms if term.is_number]
        self.terms = tuple(
            term
            for term in asked.terms
            # Of the numbers in a query the longest says the most: of a call number, or of 5 and 8080.
            if term.is_symbol or term.is_identifier or (term.is_number and len(term.ways[0][0]) == max(numbers))
        )
        self._dates = asked.dates
        total = sum(term.weight for term in asked.terms)
        self._numbered = [
            (number, _kind_pattern(kind), _share_of((kind, number, kind + number), asked, total))
            for kind, number in asked.numbered
        ]
        words = {part for term in asked.terms for way in term.ways for part in way}
        self._full_names = [
            _FullName(pair, words, _share_of([fold(word).lower() for word in pair], asked, total))
            for pair in asked.full_names
        ]
        kinds: dict[tuple[bool, bool], list[int]] = {}
        for place, term in enumerate(self.terms):
            kinds.setdefault((term.is_identifier, term.is_number), []).append(place)
        self._kinds = [
            (is_identifier, places, sum(self.terms[place].weight for place in places) / total)
            for (is_identifier, _), places in kinds.items()
        ]

    @property
    def is_needed(self) -> bool:
        """True if the query has names, numbers or numeric dates, so that chunks must be checked."""
        return bool(self.terms or self._dates or self._numbered or self._full_names)

    def lacking(
        self, text: str, holds: Callable[[int], bool], *, own: str | None = None, is_dated: bool = False
    ) -> float:
        """Return how much of the query's names and numbers a chunk lacks, from 0 to 1.

        It is 0 if the chunk has at least one name of each kind (name, identifier, number), `PARTLY`
        if it has one only as part of a longer name, else the share of the missing kind in the
        query's weight.

        Args:
            text: the chunk with its headings and neighbours.
            own: the chunk with its headings alone; None if `text` is that.
            holds: returns True for an index in `terms` if the words of that term occur in the chunk
                in sequence.
            is_dated: True if the chunk belongs to the days that the query names.
        """
        folded = join_groups(fold(text))
        lower = GROUPED.sub(ungroup, join_decimals(folded.lower()))
        lacking = 0.0
        for is_identifier, places, share in self._kinds:
            terms = [self.terms[place] for place in places]
            if any(_stands(term, lower) for term in terms):
                continue
            share = max(share, LEAST_LACKING)
            if any(holds(place) for place in places):
                # In a longer name, or with another ending.
                is_part = any(_may_begin(term) and _is_part(term, folded) for term in terms)
                found = PARTLY if is_part else min(share, MOST_OF_IT - 0.01)
            elif is_identifier or any(_has_near(term, folded) for term in terms):
                found = share
            else:
                found = min(share, MOST_OF_IT - 0.01)
            lacking = max(lacking, found)
        lacking = max(lacking, self._lacking_numbers(lower))
        if self._full_names:
            alone = folded if own is None else fold(own)
            lacking = max(lacking, *(name.lacking(alone, folded) for name in self._full_names))
        if self._dates and not is_dated and not any(date in lower for date in self._dates) and DATE.search(lower):
            lacking = max(lacking, LEAST_LACKING)
        return lacking

    def _lacking_numbers(self, text: str) -> float:
        """Return how much of the query a text lacks, in lower case, that numbers things of the same
        kinds otherwise.
        """
        lacking = 0.0
        for number, form, share in self._numbered:
            others = form.findall(text)
            is_elsewhere = (len(number) > 1 and _has_whole([number], text)) or _has_range([number], text)
            if others and number not in others and not is_elsewhere:
                lacking = max(lacking, share, LEAST_LACKING)
        return lacking


class _FullName:
    """A name of two words in a query. A chunk that has only another name with one of the words, such
    as Anna Berg for Anna Lind, is not about it.
    """

    def __init__(self, words: tuple[str, str], asked: Collection[str], share: float) -> None:
        """`asked`: all words of the query, which make no other name; `share`: of its weight."""
        first, last = (rf"(?<![^\W_]){re.escape(fold(word))}(?![^\W_])" for word in words)
        self._first, self._last = (re.compile(word, re.IGNORECASE) for word in (first, last))
        self._behind_first = re.compile(rf"{first}(?:[ ]{{1,4}}({_WORD}))?", re.IGNORECASE)
        self._before_last = re.compile(rf"(?:({_WORD})[ ]{{1,4}})?{last}", re.IGNORECASE)
        self._asked = asked
        self._share = max(share, LEAST_LACKING)

    def lacking(self, own: str, around: str) -> float:
        """Return how much of the query a chunk lacks that is about another name. `own` is the chunk,
        and `around` this with its neighbours, both folded.
        """
        has_first, has_last = bool(self._first.search(own)), bool(self._last.search(own))
        if has_first == has_last:
            return 0.0
        if not self._are_others(self._behind_first if has_first else self._before_last, own):
            return 0.0
        # First names have short forms, and the neighbours may say who is meant.
        is_sure = has_first and self._are_others(self._before_last, around)
        return self._share if is_sure else LEAST_LACKING

    def _are_others(self, pattern: re.Pattern[str], text: str) -> bool:
        """Return True if each name that the pattern finds is another one."""
        return all(self._is_other(found[1] or "") for found in islice(pattern.finditer(text), MOST_PLACES))

    def _is_other(self, word: str) -> bool:
        lower = word.lower()
        return (
            word[:1].isupper()
            and lower not in STOP_WORDS
            and not difflib.get_close_matches(lower, self._asked, n=1, cutoff=SAME_WORD)
        )


def lacking_days(asked: DayRange, *, is_all: bool, text: str) -> float:
    """Return how much of a query a chunk lacks that states other days than the query names: all of it
    if `is_all`, since the query asks for days and nothing besides. 0 if the chunk's text names the
    days, or may be about them since they are not over.
    """
    if asked.is_open or asked.is_named_in(text):
        return 0.0
    return 1.0 if is_all else LEAST_LACKING


def _kind_pattern(kind: str) -> re.Pattern[str]:
    """Return what finds the numbers of the things of a kind: "chapter 31" and "chapter #31" are chapters."""
    between = rf"[ .:#_-]{{0,2}}(?:(?:{'|'.join(sorted(OF_NUMBERS))})[ .:#_-]{{1,2}})?"
    return re.compile(rf"(?<![^\W_]){re.escape(kind)}{between}(\d+)(?![^\W_])")


def _share_of(words: Sequence[str], asked: SearchQuestion, total: float) -> float:
    own = math.fsum(term.weight for term in asked.terms if term.ways[0][0] in words)
    return own / total if total else 0.0


def _stands(term: Term, text: str) -> bool:
    """Return True if the text, in lower case, has the whole name in one of its spellings."""
    first = term.ways[0]
    may_be_hash = is_hash(first[0]) or (first[0].isdecimal() and len(first[0]) >= SHORT_HASH.start)
    if len(first) == 1 and may_be_hash and _has_hash(first[0], text):
        return True
    return any(_has_whole(way, text) for way in (*term.ways, *_numbers(first))) or _has_range(first, text)


def _has_range(way: Sequence[str], text: str) -> bool:
    """Return True if a name is a number, and the text has a range that contains it, such as 41-75."""
    number = way[0]
    if len(way) > 1 or not number.isdecimal() or len(number) > _IN_RANGES:
        return False
    ranges = islice(_RANGE.finditer(text), MOST_PLACES)
    return any(int(found[1]) <= int(number) <= int(found[2]) for found in ranges)


def _may_begin(term: Term) -> bool:
    """Return True if a longer name that begins or ends with the term may be meant: ERR_CONN is short
    for ERR_CONN_42, but no version, path or address for another.
    """
    last = term.ways[0][-1]
    return not last[-1].isdigit() and not is_hash(last) and len(term.ways[0]) <= MOST_BETWEEN


def _numbers(way: Sequence[str]) -> list[tuple[str]]:
    """Return a number in groups, 1,000, as one word: texts are searched without groups."""
    is_grouped = len(way) > 1 and all(word.isdecimal() for word in way) and len(way[0]) <= MOST_BETWEEN
    return [("".join(way),)] if is_grouped and all(len(word) == MOST_BETWEEN for word in way[1:]) else []


def _has_hash(asked: str, text: str) -> bool:
    """Return True if the text has the hash, the beginning of it, or one that begins with it."""
    return any(
        (found.startswith(asked) and is_hash(found)) or asked == found or (asked.startswith(found) and is_hash(asked))
        for found in _HEX.findall(text)
    )


def _has_whole(way: Sequence[str], text: str) -> bool:
    at = text.find(way[0])
    for _ in range(MOST_PLACES):
        if at < 0:
            return False
        end = _end_of(way, text, at)
        if end and _is_free_before(way, text, at) and _is_free_behind(way, text, end):
            return True
        at = text.find(way[0], at + 1)
    return False


def _end_of(way: Sequence[str], text: str, at: int) -> int:
    """Return where the words end that begin there in a row, 0 if they are others."""
    end = at + len(way[0])
    for word in way[1:]:
        begin = end
        while begin < end + MOST_BETWEEN and begin < len(text) and not text[begin].isalnum():
            begin += 1
        if not text.startswith(word, begin) or (begin == end and word[0].isdigit() and text[end - 1].isdigit()):
            return 0
        end = begin + len(word)
    return end


def _is_free_before(way: Sequence[str], text: str, at: int) -> bool:
    """Return True if no longer name or number ends with the words."""
    before = text[max(0, at - 2) : at]
    if not before:
        return True
    is_number = way[0][0].isdigit()
    if before[-1].isalnum():
        return is_number and before[-1] == "v" and not before[:-1].isalnum()
    if not before[0].isalnum() or len(before) == 1:
        return True
    return before[-1] not in ("-_.," if is_number and before[0].isdigit() else "_")


def _is_free_behind(way: Sequence[str], text: str, end: int) -> bool:
    """Return True if no longer name or number begins with the words: a file's line, a port, or the
    words of a branch behind a ticket do not change what is named.
    """
    mark, after = text[end : end + 1], text[end + 1 : end + 2]
    if not mark or not (mark.isalnum() or after.isalnum()):
        return True
    is_digits = way[-1][-1].isdigit()
    if mark.isalnum():
        return False
    if mark == "-":
        return is_digits and not after.isdigit() and not _VERSION.match(way[0])
    if mark == ".":
        return not (is_digits and after.isdigit()) and "".join(way).isdecimal()
    if mark == "/":
        return len(way) > 1 and all(word.isdecimal() for word in way)
    return mark != "_" and not (mark == "," and is_digits and after.isdigit())


def _is_part(term: Term, text: str) -> bool:
    """Return True if a name in the text has all words of the term in a row, and others."""
    for compound in COMPOUND.findall(text):
        words = [part for word in PLAIN.findall(compound) for part in humps(word) or [word.lower()]]
        line = f" {' '.join(words)} "
        if any(f" {' '.join(way)} " in line for way in term.ways):
            return True
    return False


def _has_near(term: Term, text: str) -> bool:
    """Return True if the text has a name that differs from the term in one word of several."""
    return any(
        len(other) == len(way) and sum(one != two for one, two in zip(other, way, strict=True)) == 1
        for way in term.ways
        if len(way) > 1
        for compound in COMPOUND.findall(text)
        for other in (parts(compound), humps(compound))
    )
