"""Search queries: parses a query into an FTS5 query and weighted terms. A device and its daemon run
the same code.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise

from confide_memory.documents import STOP_WORDS
from confide_memory.tools.days import OF_ANY_DAY, DayRange
from confide_memory.tools.foreign import common_words
from confide_memory.tools.words import (
    COMPOUND,
    GROUPED,
    PLAIN,
    RUN,
    SHORT_HASH,
    SIGNED,
    bigrams,
    fold,
    is_hash,
    is_identifier,
    is_name,
    join_decimals,
    join_groups,
    may_go_on,
    numbered_things,
    other_spellings,
    parts,
    runs,
    spelled_otherwise,
    ungroup,
)
from confide_memory.tools.written_days import dates_in, month_numbers, phrase

# A question has few words; a pasted log has thousands, and each costs a scan.
MOST_TERMS = 48
MOST_NAMED = 8  # things that a question names by a number, and by two words
MOST_COMPOUNDS = 1000  # of a text that is a whole file, the first ones
DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
QUOTED = re.compile(r'"([^"]{1,200})"')
# Weight of a term: the root of its length, up to LONGEST; twice the longest word's for a name, less
# for a pair of letters.
LONGEST = 8
NAME_WEIGHT: float = 2 * LONGEST**0.5
BIGRAM_WEIGHT = 2**0.5
DAY_WEIGHT: float = LONGEST**0.5
# A single word or a name is also searched as a prefix, from this length on.
SHORTEST_PREFIX = 3
# Letters that may be the ending of a word in a script without a stemmer; such a word is searched by
# its prefix. Words shorter than both lengths together carry little meaning there, like `STOP_WORDS`
# in English.
ENDING = 2


@dataclass(frozen=True, slots=True)
class Term:
    """A term that a relevant chunk should contain: a word, a name, or a pair of letters in a script
    without blanks.
    """

    ways: tuple[tuple[str, ...], ...]  # alternative word sequences: get_user_by_id is also written getUserById
    weight: float
    is_name: bool = False
    is_beginning: bool = False  # the last word of a sequence matches as a prefix
    is_identifier: bool = False  # a text without it is about another thing
    is_symbol: bool = False  # it looks like the name of one thing, and not like a word with a hyphen
    is_number: bool = False
    is_proper: bool = False  # a proper noun, as far as its capital letter shows
    shorter: tuple[tuple[str, ...], ...] = ()  # shorter forms that other texts use, matched exactly

    @property
    def match(self) -> str:
        """The FTS5 query that finds the rows that contain this term."""
        own = [_quote(way) + (" *" if self.is_beginning else "") for way in self.ways]
        return " OR ".join([*own, *map(_quote, self.shorter)])


@dataclass(frozen=True, slots=True)
class SearchQuestion:
    match: str  # the FTS5 query of the keyword search, "" without any word
    exact: str  # the FTS5 query of names and quoted phrases, which must match exactly, or ""
    terms: tuple[Term, ...]  # terms that a relevant chunk should contain
    named: float  # the share of the terms' weight that `exact` covers
    also: tuple[Term, ...] = ()  # the caller's keywords, each of which may replace terms in a chunk
    dates: tuple[str, ...] = ()  # days that are named in digits
    day: Term | None = None  # the dates that the query names, each in the form of the index
    numbered: tuple[tuple[str, str], ...] = ()  # kind and number: another number is another thing
    full_names: tuple[tuple[str, str], ...] = ()  # names of two words, such as a first and a last name

    def with_day(self, share: float) -> float:
        """Return a term share that is raised for a chunk that belongs to the query's days or names
        one of them.

        `share` is the share of the query's terms that the chunk contains. The day counts as one
        more term that it contains. Other chunks are not rated lower.
        """
        total = sum(term.weight for term in self.terms)
        held: float = share * total + DAY_WEIGHT
        return held / (total + DAY_WEIGHT)

    @property
    def identifiers(self) -> tuple[Term, ...]:
        """The terms that identify a single thing, such as a ticket number. A text without any of
        them is about something else.
        """
        return tuple(term for term in self.terms if term.is_identifier)


SATURATION = 8.0  # the BM25 score that maps to one half
# Weights for a chunk without a vector; fitted by logistic regression (the daemon's `scoring` names
# the data).
KEYWORD = {"keyword": 3.4, "terms": 5.1, "constant": -4.63}
# A chunk with a name or a quoted phrase of the query is more often relevant than not, however long
# the query is.
NAMED = -0.5
# A chunk that lacks a name of the query is no certain answer: LACKING is a score of 0.45. It is no answer
# if the query is little more than such names, and perhaps one if it has a longer name with this in
# it (`PARTLY`).
LACKING, LACKING_ALL, LACKING_PARTLY = -0.2, -1.5, 0.4
PARTLY, MOST_OF_IT = 0.1, 0.5


def words_score(keyword: float, terms: float, *, is_named: bool = False, lacking: float = 0.0) -> float:
    """Return the probability that a chunk answers the query, estimated from words alone.

    Args:
        keyword: the chunk's BM25 score, mapped to 0 to 1 by `saturate`.
        terms: the share of the query's terms that occur in the chunk or near it.
        is_named: True if the chunk contains a name or a quoted phrase of the query exactly.
        lacking: how much of the query's names the chunk lacks, as `NameCheck.lacking` returns it.
    """
    least, most = bounds(is_named=is_named, lacking=lacking)
    value = KEYWORD["constant"] + KEYWORD["keyword"] * keyword + KEYWORD["terms"] * terms
    return logistic(min(most, max(value, least)))


def bounds(*, is_named: bool, lacking: float) -> tuple[float, float]:
    """Return the lowest and the highest logit that a chunk's score may have, given the names of the
    query that it contains or lacks. The arguments are as in `words_score`.
    """
    if not lacking:
        most = math.inf
    elif lacking <= PARTLY:
        most = LACKING_PARTLY
    else:
        most = LACKING if lacking < MOST_OF_IT else LACKING_ALL
    return NAMED if is_named else -math.inf, most


def unknown_share(asked: SearchQuestion, is_there: Callable[[Term], bool]) -> float:
    """Return the share, by weight, of the query's proper nouns that occur in no text; matches of
    other words cannot make up for them.

    `is_there` returns True if a term occurs in any text.
    """
    unknown = sum(1 for term in asked.terms if term.is_proper and not is_there(term))
    if not unknown:
        return 0.0
    others = math.fsum(term.weight for term in asked.terms if not term.is_proper or is_there(term))
    return unknown * NAME_WEIGHT / (others + unknown * NAME_WEIGHT)


def saturate(bm25: float) -> float:
    """Map a BM25 score to the range 0 to 1, so that the scores of different queries can be
    compared.
    """
    bm25 = max(0.0, bm25)
    return bm25 / (bm25 + SATURATION)


def logistic(value: float) -> float:
    """Map any number to the range 0 to 1, by the logistic function."""
    return 1.0 / (1.0 + math.exp(-value))


def keyword_query(text: str, keywords: Sequence[str] = ()) -> str:
    """Return the FTS5 query for a keyword search, or "" if the text has no words."""
    return question(text, keywords).match


def question(text: str, keywords: Sequence[str] = (), *, aside: str = "", days: Sequence[str] = ()) -> SearchQuestion:
    """Parse a search query.

    Every term is quoted, and the terms are joined by OR, so that no text acts as query syntax. A
    quoted term is matched as a phrase of its parts: `ERR_CONN_42`, `src/app.py` and `retry-after`
    are searched exactly, and by each of their parts. Text in double quotes stays one phrase.

    Args:
        text: the query as a user or model wrote it.
        keywords: further words to search for.
        aside: words of the text that a relevant chunk need not contain, such as "last week".
        days: dates that these words mean, as `DayRange.phrases` returns them.
    """
    raw, text = text, GROUPED.sub(_in_one, join_decimals(join_groups(fold(text))))
    forming = _Forming({}, {}, {}, STOP_WORDS | common_words(raw))
    dates = dates_in(raw)
    stated = [fold(raw[one.start : one.end]) for one in dates]
    skipped = set(parts(fold(aside))) | {part for one in stated for part in parts(one)}
    of_dates = {compound for one in stated for compound in COMPOUND.findall(one)}
    days = list(dict.fromkeys([*(phrase(span) for one in dates for span in one.spans), *days]))
    for quoted in QUOTED.findall(text):
        forming.take_phrase(quoted)
    also = [term for keyword in keywords if (term := _keyword(keyword)).ways]
    forming.match.update((_quote(term.ways[0]) + (" *" if term.is_beginning else ""), None) for term in also)
    in_order = COMPOUND.findall(RUN.sub(" ", text))
    compounds = list(dict.fromkeys(in_order))[:MOST_COMPOUNDS]
    joined = _joined_numbers(in_order[:MOST_COMPOUNDS])
    for compound in compounds:
        is_date = compound in of_dates or skipped.issuperset(parts(compound))
        forming.take_compound(compound, is_alone=len(compounds) == 1, is_aside=is_date)
    forming.take_words(compounds, skipped, joined)
    for run in runs(_without(text, (*stated, *fold(aside).split()))):
        forming.take_run(run)
    forming.look_for(day.split() for day in days)
    # Last, so that many keywords or forms of a hash do not displace the query's own words.
    forming.match.update((_quote(way), None) for term in also for way in term.ways[1:])
    forming.look_for(way for term in forming.terms.values() for way in term.shorter)
    forming.look_for([one] for one in joined.values())
    if text != raw:
        forming.take_unfolded(raw)
    found = forming.finish(also, tuple(compound for compound in compounds if DATE.fullmatch(compound)))
    numbered = _numbered(in_order[:MOST_COMPOUNDS], of_dates, skipped)
    names = _full_names(raw, in_order[:MOST_COMPOUNDS])
    return replace(found, day=_day_term(days), numbered=numbered, full_names=names)


def _numbered(compounds: Iterable[str], of_dates: Container[str], skipped: set[str]) -> tuple[tuple[str, str], ...]:
    """Return the things that the query names by a number, such as a chapter, but no day."""
    plain = [one for one in compounds if one not in of_dates and not skipped.issuperset(parts(one))]
    return tuple(dict.fromkeys(numbered_things(plain)))[:MOST_NAMED]


def _day_term(days: Iterable[str]) -> Term | None:
    ways = tuple(tuple(day.split()) for day in days)
    return Term(ways, DAY_WEIGHT) if ways else None


def _without(text: str, words: Iterable[str]) -> str:
    """Return the text without these words of scripts that have no blanks between words."""
    for one in words:
        if RUN.search(one):
            text = text.replace(one, " ")
    return text


def _in_one(number: re.Match[str]) -> str:
    """Return 1,000 as 1000, but 1.000 as it is: it may be a version."""
    return number[0] if "." in number[0] else ungroup(number)


@dataclass(slots=True)
class _Forming:
    """A query under construction: its FTS5 queries, with parts in order of priority, and its terms
    by their words.
    """

    match: dict[str, None]
    exact: dict[str, None]
    terms: dict[tuple[str, ...], Term]
    stop_words: Set[str]

    def look_for(self, ways: Iterable[Sequence[str]]) -> None:
        """Add each of these word sequences to the keyword search."""
        self.match.update((_quote(way), None) for way in ways)

    def take_phrase(self, phrase: str) -> None:
        """Add text that was in double quotes, as one phrase."""
        words = parts(RUN.sub(" ", phrase))
        if words:
            self.match[_quote(words)] = None
        if len(words) > 1:
            self.exact[_quote(words)] = None
        elif not words:
            self.exact.update((_of_run(run), None) for run in runs(phrase) if len(run) > 1)

    def take_compound(self, compound: str, *, is_alone: bool, is_aside: bool = False) -> None:
        """Add a compound in each of its spellings; also as a term if it is a name or the whole
        query. `is_aside`: it is a day, which a chunk need not contain.
        """
        ways = _ways(compound)
        name = bool(ways) and (is_name(compound) or is_alone) and not is_aside
        goes_on = name and all(may_go_on(way[-1]) for way in ways)
        shorter = _shorter(compound) if name else []
        for way in ways:
            self.match[_quote(way) + (" *" if goes_on and len(way[-1]) >= SHORTEST_PREFIX else "")] = None
            if name:
                self.exact[_quote(way)] = None
        self.exact.update((_quote(way), None) for way in shorter)
        if name:
            self.terms[tuple(ways[0])] = Term(
                tuple(map(tuple, ways)),
                NAME_WEIGHT,
                is_name=True,
                is_beginning=goes_on,
                is_identifier=is_identifier(compound),
                is_symbol=is_name(compound),
                shorter=tuple(map(tuple, shorter)),
            )

    def take_words(self, compounds: Sequence[str], skipped: Collection[str], joined: Mapping[str, str]) -> None:
        """Add the meaningful words. Words of a name are terms already, words in `skipped` are
        optional, and `joined` has other spellings of numbers.
        """
        plain = [word.lower() for compound in compounds for word in PLAIN.findall(compound)]
        chosen = _telling(plain, self.stop_words)
        proper = _proper(compounds)
        named = {word for term in self.terms.values() for way in term.ways for word in way}
        is_single = not self.match and len(chosen) == 1 and len(chosen[0]) > SHORTEST_PREFIX and may_go_on(chosen[0])
        for word in chosen:
            if word in named or word in skipped:
                continue
            weight = min(len(word), LONGEST) ** 0.5
            if is_unstemmed(word):
                beginning = word[: max(SHORTEST_PREFIX + 1, len(word) - ENDING)]
                self.match[_quote([beginning]) + " *"] = None
                self.terms[(beginning,)] = Term(((beginning,),), weight, is_beginning=True)
            else:
                others = [other for other in (spelled_otherwise(word),) if other is not None]
                self.look_for([other] for other in others)
                others += [joined[word]] if word in joined else []
                self.terms[(word,)] = Term(
                    ((word,), *((other,) for other in others)),
                    weight,
                    is_beginning=is_single,
                    is_proper=word in proper,
                    is_number=word.isdecimal() and len(word) > 1,
                )
        if is_single:
            self.match[_quote(chosen) + " *"] = None
        else:
            # Every text of a month or year contains the numbers of its date; the whole date is
            # searched anyway.
            self.look_for([word] for word in chosen if not (word in skipped and word.isdigit()))

    def take_run(self, run: str) -> None:
        """Add a run of letters of a script without spaces, by pairs of letters."""
        pairs = bigrams(run)
        self.match[_of_run(run)] = None
        if len(run) > 1:
            self.look_for([pair] for pair in pairs)
        self.terms.update(((pair,), Term(((pair,),), BIGRAM_WEIGHT, is_beginning=len(run) == 1)) for pair in pairs)

    def take_unfolded(self, raw: str) -> None:
        """Add the query as it was written: rows indexed before letters were folded contain no other
        spelling.
        """
        for written in unicodedata.normalize("NFC", RUN.sub(" ", raw)).split()[:MOST_COMPOUNDS]:
            words = [] if written.isascii() or fold(written) == written else parts(written)
            # FTS5 splits the words of Indian scripts at their vowel signs.
            self.look_for([words] if words and SIGNED.search(written) else ([word] for word in words))
        for run in runs(raw):
            self.match[_of_run(run)] = None
            self.look_for([pair] for pair in bigrams(run))

    def finish(self, also: Sequence[Term], dates: tuple[str, ...]) -> SearchQuestion:
        """Return the finished query. `also`: the terms of the caller's keywords; `dates`: the days
        in it.
        """
        terms = tuple(self.terms.values())
        total = sum(term.weight for term in terms)
        names = sum(term.weight for term in terms if term.is_name)
        share = 1.0 if self.exact and not names else names / total if total else 0.0
        own = {way for term in terms for way in term.ways}
        others = tuple(term for term in also if own.isdisjoint(term.ways))  # a repeated word counts once
        return SearchQuestion(_join_or(self.match), _join_or(self.exact), terms[:MOST_TERMS], share, others, dates)


def _joined_numbers(compounds: Sequence[str]) -> dict[str, str]:
    """Return the spelling in one word, as RFC7230, of the numbers behind a word."""
    return {
        number: f"{kind}{number}".lower()
        for kind, number in pairwise(compounds)
        if number.isdecimal() and len(number) > 1 and kind.isalpha() and kind.lower() not in STOP_WORDS
    }


def _telling(plain: list[str], stop_words: Set[str]) -> list[str]:
    """Return the meaningful words; all words if there are none."""
    chosen = [word for word in plain if word not in stop_words] or plain
    return [word for word in chosen if len(word) > SHORTEST_PREFIX or not is_unstemmed(word)] or chosen


def is_unstemmed(word: str) -> bool:
    """Return True if a word is in a script without a stemmer, such as Cyrillic, Greek or Arabic.
    Neither the Porter stemmer nor most models know the endings of such words.
    """
    return not word[0].isascii() and not unicodedata.name(word[0], "").startswith("LATIN ")


def of_days(asked: SearchQuestion, days: DayRange) -> SearchQuestion | None:
    """Return a query for the daily notes of these days, or None if the query asks for anything
    besides days.
    """
    words = {word for term in asked.terms for way in term.ways for word in way}
    if asked.exact or asked.also or not (days.is_all or words <= OF_ANY_DAY):
        return None
    dates = days.phrases() or [day.replace("-", " ") for day in days.latest(MOST_TERMS)]
    match = _join_or({_quote(day.split()): None for day in dates})
    return SearchQuestion(match, "", (), 0.0, dates=tuple(days.latest(MOST_TERMS)))


def _keyword(text: str) -> Term:
    """Return a keyword as a term: its words, or other spellings of the same name; without `ways` if
    all its words are stop words.
    """
    found = runs(text)
    compound = COMPOUND.fullmatch(text.strip())
    ways = [parts(RUN.sub(" ", text)), *(_ways(compound[0]) if compound and not found else []), *map(bigrams, found)]
    ways = [way for way in ways if not STOP_WORDS.issuperset(way)]
    weight = sum(min(len(word), LONGEST) ** 0.5 for word in ways[0]) if ways else 0.0
    return Term(tuple(dict.fromkeys(map(tuple, ways))), weight, is_beginning=[len(run) for run in found] == [1])


def _of_run(run: str) -> str:
    return _quote(bigrams(run)) + (" *" if len(run) == 1 else "")


def _ways(compound: str) -> list[list[str]]:
    """Return the word sequences that match a compound; none for a plain word, or without a word
    (`_._`).
    """
    if compound.isalpha() and compound.islower() and not is_hash(compound):  # true for most words of a query
        return []
    words = parts(compound)
    if not words:
        return []
    others = [other.split() for other in other_spellings(compound) if other]
    ways = [words] if len(words) > 1 or others or is_name(compound) else []
    return ways + others


def _proper(compounds: Sequence[str]) -> frozenset[str]:
    """Return the words that an English query capitalizes inside a sentence; other languages
    capitalize other words too.
    """
    inside = [word for word in compounds[1:] if word.isalpha() and word.isascii() and len(word) > 1]
    plain = {word for word in inside if word.islower()}
    return frozenset(word.lower() for word in inside if word[0].isupper()) if plain & STOP_WORDS else frozenset()


def _full_names(raw: str, compounds: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return each two words in a row that are capitalized, in an English query that has others;
    other languages capitalize more words.
    """
    if common_words(raw) or not any(word.islower() for word in compounds):
        return ()
    return tuple(pair for pair in dict.fromkeys(pairwise(compounds)) if all(map(_is_capitalized, pair)))[:MOST_NAMED]


def _is_capitalized(word: str) -> bool:
    is_word = len(word) > 1 and word.isalpha() and word.lower() not in STOP_WORDS
    return is_word and word[0].isupper() and word.lower() not in month_numbers()


def _shorter(compound: str) -> list[list[str]]:
    """Return the prefixes of a hash that other texts may use for it."""
    return [[compound.lower()[:length]] for length in SHORT_HASH if length < len(compound)] if is_hash(compound) else []


def _quote(words: Sequence[str]) -> str:
    return '"' + " ".join(words) + '"'


def _join_or(terms: dict[str, None]) -> str:
    return " OR ".join(list(terms)[:MOST_TERMS])
