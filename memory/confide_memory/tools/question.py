"""What of a question is looked for: an FTS5 query, and the terms of a right piece; the same on a machine and on its daemon."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from confide_memory.documents import STOP_WORDS
from confide_memory.tools.words import (
    COMPOUND,
    PLAIN,
    RUN,
    SHORT_HASH,
    beside,
    bigrams,
    fold,
    is_hash,
    is_identifier,
    is_name,
    may_go_on,
    parts,
    runs,
    spelled_otherwise,
)

# Words that leave a question for days as open as it was: "what happened yesterday", "what did I work on last week".
OF_ANY_DAY = frozenset(
    """anything change changed changes day entries entry everything happen happened happening log logs note noted notes show something
    stored summarise summarize summary tell thing things went work worked working write wrote written""".split()  # noqa: SIM905
)
# A question has a handful of words; a pasted log has thousands, and each costs a scan.
MOST_TERMS = 48
QUOTED = re.compile(r'"([^"]{1,200})"')
# How much a term says: the root of its length up to here, a name of one thing twice as much as the longest word, a pair of letters less.
LONGEST = 8
NAME_WEIGHT = 2 * LONGEST**0.5
BIGRAM_WEIGHT = 2**0.5
# A single word, or a name, is also looked for as a beginning, from this length on.
SHORTEST_PREFIX = 3
# Letters that may be the ending of a word in a script without a stemmer: it is looked for by what stands before them. Shorter words than
# these two together say little there, as those of `STOP_WORDS` do in English.
ENDING = 2


@dataclass(frozen=True, slots=True)
class Term:
    """One thing that a right piece should hold: a word, the name of a thing, a pair of letters."""

    ways: tuple[
        tuple[str, ...], ...
    ]  # runs of words, each of which will do: get_user_by_id is also written getUserById
    weight: float
    is_name: bool = False
    is_beginning: bool = False  # the last word of a run may go on
    is_identifier: bool = False  # a text without it is about another thing
    is_proper: bool = False  # somebody's or something's own name, as far as a capital letter tells
    shorter: tuple[tuple[str, ...], ...] = ()  # what others write of it, which may not go on

    @property
    def match(self) -> str:
        """The FTS5 query of the rows that hold it."""
        own = [_quoted(way) + (" *" if self.is_beginning else "") for way in self.ways]
        return " OR ".join([*own, *map(_quoted, self.shorter)])


@dataclass(frozen=True, slots=True)
class SearchQuestion:
    match: str  # the FTS5 query of the keyword leg, or "" when there is no word at all
    exact: str  # the FTS5 query of what is to be found as it stands (names and quoted phrases), or ""
    terms: tuple[Term, ...]  # what a right piece should hold
    named: float  # the share of the terms' weight that `exact` has
    also: tuple[Term, ...] = ()  # the caller's keywords, each of which may stand in a piece in place of terms

    @property
    def identifiers(self) -> tuple[Term, ...]:
        """The terms without any of which a text is about another thing."""
        return tuple(term for term in self.terms if term.is_identifier)

    @property
    def identified(self) -> float:
        """The share of the terms, by weight, that identifiers are."""
        total = sum(term.weight for term in self.terms)
        return sum(term.weight for term in self.identifiers) / total if total else 0.0


SATURATION = 8.0  # the BM25 score that counts half
# What is weighed of a piece that has no vector; fitted by logistic regression (`scoring` in the daemon says on what).
KEYWORD = {"keyword": 3.4, "terms": 5.1, "constant": -4.63}
# A piece in which a name or a quoted phrase stands as it was asked for is an answer more often than not, however long the question is.
NAMED = -0.5
# Nor is one an answer in which none of the question's identifiers stands: of a question that is hardly more than those it never is.
LACKING, LACKING_ALL = 0.0, -1.5
MOST_OF_IT = 0.5


def words_score(keyword: float, terms: float, *, is_named: bool = False, lacking: float = 0.0) -> float:
    """How likely a piece answers a question, by words alone, 0 to 1.

    Args:
        keyword: its BM25, saturated.
        terms: the share of the question's terms that stands in it or around it.
        is_named: a name or a quoted phrase of the question stands in it as it was asked for.
        lacking: the share of the question that its identifiers are, if none of them stands there.
    """
    least, most = bounds(is_named=is_named, lacking=lacking)
    value = KEYWORD["constant"] + KEYWORD["keyword"] * keyword + KEYWORD["terms"] * terms
    return logistic(min(most, max(value, least)))


def bounds(*, is_named: bool, lacking: float) -> tuple[float, float]:
    """What names say of a score before it is brought into 0 to 1: the least and the most that it is."""
    most = math.inf if not lacking else LACKING if lacking < MOST_OF_IT else LACKING_ALL
    return NAMED if is_named else -math.inf, most


def saturate(bm25: float) -> float:
    """BM25 brought into 0 to 1 so that scores of different questions can be compared."""
    bm25 = max(0.0, bm25)
    return bm25 / (bm25 + SATURATION)


def logistic(value: float) -> float:
    """Any number brought into 0 to 1."""
    return 1.0 / (1.0 + math.exp(-value))


def keyword_query(text: str, keywords: Sequence[str] = ()) -> str:
    """The FTS5 query of the keyword leg, or "" when there is no word at all."""
    return question(text, keywords).match


def question(text: str, keywords: Sequence[str] = (), *, aside: str = "") -> SearchQuestion:
    """What the text asks for.

    Every term is quoted and they are joined by OR, so nothing of the text can act as syntax. A quoted term is matched as a phrase of
    its parts: `ERR_CONN_42`, `src/app.py` and `retry-after` are looked for as they stand, beside each of their parts. What the caller
    put in double quotes stays one phrase.

    `aside`: words of the text that a right piece need not hold, such as "last week".
    """
    raw, text = text, fold(text)
    forming = _Forming({}, {}, {})
    for phrase in QUOTED.findall(text):
        forming.take_phrase(phrase)
    also = [term for keyword in keywords if (term := _keyword(keyword)).ways]
    forming.match.update((_quoted(term.ways[0]) + (" *" if term.is_beginning else ""), None) for term in also)
    compounds = COMPOUND.findall(RUN.sub(" ", text))
    for compound in compounds:
        forming.take_compound(compound, is_alone=len(compounds) == 1)
    forming.take_words(compounds, set(parts(aside)))
    for run in runs(text):
        forming.take_run(run)
    # Last, so that many keywords do not push out the question's own words.
    forming.match.update((_quoted(way), None) for term in also for way in term.ways[1:])
    if text != raw:
        # As it was written: the rows of documents that have not been looked at since letters were folded hold no other form.
        forming.look_for([word] for word in parts(RUN.sub(" ", unicodedata.normalize("NFC", raw))))
        forming.match.update((_of_run(run), None) for run in runs(raw))
    return forming.done(also)


@dataclass(slots=True)
class _Forming:
    """A question that is being put together: its queries, in the order in which their parts are kept, and its terms by their words."""

    match: dict[str, None]
    exact: dict[str, None]
    terms: dict[tuple[str, ...], Term]

    def look_for(self, ways: Iterable[Sequence[str]]) -> None:
        """Have the keyword leg look for each of these runs of words."""
        self.match.update((_quoted(way), None) for way in ways)

    def take_phrase(self, phrase: str) -> None:
        """Take what the caller put in double quotes, which stays one phrase."""
        words = parts(RUN.sub(" ", phrase))
        if words:
            self.match[_quoted(words)] = None
        if len(words) > 1:
            self.exact[_quoted(words)] = None
        elif not words:
            self.exact.update((_of_run(run), None) for run in runs(phrase) if len(run) > 1)

    def take_compound(self, compound: str, *, is_alone: bool) -> None:
        """Take a compound as each run of words that stands for it; and as a term, where it is a name or all that is asked for."""
        ways = _ways(compound)
        name = bool(ways) and (is_name(compound) or is_alone)
        goes_on = name and all(may_go_on(way[-1]) for way in ways)
        shorter = _shorter(compound) if name else []
        for way in ways:
            self.match[_quoted(way) + (" *" if goes_on and len(way[-1]) >= SHORTEST_PREFIX else "")] = None
            if name:
                self.exact[_quoted(way)] = None
        for way in shorter:
            self.match[_quoted(way)] = self.exact[_quoted(way)] = None
        if name:
            self.terms[tuple(ways[0])] = Term(
                tuple(map(tuple, ways)),
                NAME_WEIGHT,
                is_name=True,
                is_beginning=goes_on,
                is_identifier=is_identifier(compound),
                shorter=tuple(map(tuple, shorter)),
            )

    def take_words(self, compounds: Sequence[str], skipped: Collection[str]) -> None:
        """Take the words that say something, of which those of a name are terms already, and those of `skipped` need not be there."""
        chosen = _telling([word.lower() for compound in compounds for word in PLAIN.findall(compound)])
        proper = _proper(compounds)
        named = {word for term in self.terms.values() for way in term.ways for word in way}
        is_single = not self.match and len(chosen) == 1 and len(chosen[0]) > SHORTEST_PREFIX and may_go_on(chosen[0])
        for word in chosen:
            if word in named or word in skipped:
                continue
            weight = min(len(word), LONGEST) ** 0.5
            if is_unstemmed(word):
                beginning = word[: max(SHORTEST_PREFIX + 1, len(word) - ENDING)]
                self.match[_quoted([beginning]) + " *"] = None
                self.terms[(beginning,)] = Term(((beginning,),), weight, is_beginning=True)
            else:
                other = spelled_otherwise(word)
                spellings = ((word,),) if other is None else ((word,), (other,))
                self.look_for(spellings[1:])
                self.terms[(word,)] = Term(spellings, weight, is_beginning=is_single, is_proper=word in proper)
        if is_single:
            self.match[_quoted(chosen) + " *"] = None
        else:
            # The numbers of a date stand in every text of that month or year; as a whole it is looked for all the same.
            self.look_for([word] for word in chosen if not (word in skipped and word.isdigit()))

    def take_run(self, run: str) -> None:
        """Take a run of letters that no spaces part into words, pair by pair."""
        pairs = bigrams(run)
        self.match[_of_run(run)] = None
        if len(run) > 1:
            self.look_for([pair] for pair in pairs)
        self.terms.update(((pair,), Term(((pair,),), BIGRAM_WEIGHT, is_beginning=len(run) == 1)) for pair in pairs)

    def done(self, also: Sequence[Term]) -> SearchQuestion:
        """The question. `also`: the terms of the caller's keywords."""
        terms = tuple(self.terms.values())
        total = sum(term.weight for term in terms)
        names = sum(term.weight for term in terms if term.is_name)
        share = 1.0 if self.exact and not names else names / total if total else 0.0
        own = {way for term in terms for way in term.ways}
        others = tuple(term for term in also if own.isdisjoint(term.ways))  # a word that is given twice counts once
        return SearchQuestion(_joined(self.match), _joined(self.exact), terms[:MOST_TERMS], share, others)


def _telling(plain: list[str]) -> list[str]:
    """The words that say something; all, where none does."""
    chosen = [word for word in plain if word not in STOP_WORDS] or plain
    return [word for word in chosen if len(word) > SHORTEST_PREFIX or not is_unstemmed(word)] or chosen


def is_unstemmed(word: str) -> bool:
    """Whether a word is of a script that no ending is known of, neither to Porter's stemmer nor to most models: Cyrillic, Greek, Arabic."""
    return not word[0].isascii() and not unicodedata.name(word[0], "").startswith("LATIN ")


def of_days(asked: SearchQuestion, days: Sequence[str]) -> SearchQuestion | None:
    """What finds the files of these ISO days, for a question that asks for nothing else; None for any other."""
    words = {word for term in asked.terms for way in term.ways for word in way}
    if asked.exact or asked.also or not words <= OF_ANY_DAY:
        return None
    return SearchQuestion(_joined({_quoted(parts(day)): None for day in days}), "", (), 0.0)


def _keyword(text: str) -> Term:
    """A keyword: its words as they stand, or what else stands for the same name; without ways where no word of it says anything."""
    found = runs(text)
    compound = COMPOUND.fullmatch(text.strip())
    ways = [parts(RUN.sub(" ", text)), *(_ways(compound[0]) if compound and not found else []), *map(bigrams, found)]
    ways = [way for way in ways if not STOP_WORDS.issuperset(way)]
    weight = sum(min(len(word), LONGEST) ** 0.5 for word in ways[0]) if ways else 0.0
    return Term(tuple(dict.fromkeys(map(tuple, ways))), weight, is_beginning=[len(run) for run in found] == [1])


def _of_run(run: str) -> str:
    return _quoted(bigrams(run)) + (" *" if len(run) == 1 else "")


def _ways(compound: str) -> list[list[str]]:
    """The runs of words that stand for a compound; none for a word that is only itself, or where there is no word (`_._`)."""
    if compound.isalpha() and compound.islower():  # as most words of a question are
        return []
    words = parts(compound)
    if not words:
        return []
    others = [other.split() for other in beside(compound) if other]
    ways = [words] if len(words) > 1 or others or is_name(compound) else []
    return ways + others


def _proper(compounds: Sequence[str]) -> frozenset[str]:
    """The words that a question in English writes with a capital letter: other languages write others so."""
    inside = [word for word in compounds[1:] if word.isalpha() and word.isascii() and len(word) > 1]
    plain = {word for word in inside if word.islower()}
    return frozenset(word.lower() for word in inside if word[0].isupper()) if plain & STOP_WORDS else frozenset()


def _shorter(compound: str) -> list[list[str]]:
    """The beginnings of a hash, by which others may have written it down."""
    return [[compound.lower()[:length]] for length in SHORT_HASH if length < len(compound)] if is_hash(compound) else []


def _quoted(words: Sequence[str]) -> str:
    return '"' + " ".join(words) + '"'


def _joined(terms: dict[str, None]) -> str:
    return " OR ".join(list(terms)[:MOST_TERMS])
