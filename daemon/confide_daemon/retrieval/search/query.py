"""What a search is asked for, what of that the keyword leg looks for, and the days that a question speaks of: "yesterday", "last week",
"on Monday", "in May", "2026-05-03".

Days are only a hint for the ranking: pieces of those days come first, and nothing is left out, since a text may well speak of a day that
is not the one it was written on. Where a question names two different times, or the words stand in quotes or code, there is no hint.
"""

from __future__ import annotations

import calendar
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from confide_daemon.store.rows import Filter
from confide_daemon.store.tables.keyword import (
    COMPOUND,
    PLAIN,
    RUN,
    SHORT_HASH,
    beside,
    bigrams,
    is_hash,
    is_identifier,
    is_name,
    may_go_on,
    parts,
    runs,
)
from confide_memory.documents import STOP_WORDS


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What is asked for. `since` and `until` count by whole days, both included: documents are dated by the day."""

    text: str
    projects: frozenset[str] | None = None
    max_results: int = 8
    min_score: float = 0.25
    sources: frozenset[str] | None = None
    path: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    keywords: tuple[str, ...] = ()
    rank: str = "relevance"
    max_tokens: int | None = None
    project: str | None = None  # the asking one: among equals its pieces come first, and in rank "balanced" they gain
    explain: bool = False
    # Of notes; `Filter` says how each narrows the search.
    tags: frozenset[str] = frozenset()
    types: frozenset[str] | None = None
    category: str | None = None
    entity: str | None = None
    without_tasks: bool = False
    task: str | None = None
    task_projects: frozenset[str] | None = None
    # Where notes may lie that hits are superseded by or related with; None: anywhere.
    reach: frozenset[str] | None = None
    with_related: bool = False
    # What may come back, in the hits and in what is told beside them; None: all classes.
    classes: frozenset[str] | None = None
    is_unasked: bool = False  # a prompt that nobody asked the memory about: scores say whether a hit helps with it
    is_limited: bool = False  # the caller reaches a part of the space, and its scores may tell nothing of the rest


def filter_of(query: SearchQuery) -> Filter:
    """The query's limits as the store takes them."""
    return Filter(
        projects=query.projects,
        sources=query.sources,
        path=query.path,
        since=_day(query.since),
        until=_day(query.until),
        tags=query.tags,
        types=query.types,
        category=query.category,
        entity=query.entity,
        without_tasks=query.without_tasks,
        task=query.task,
        task_projects=query.task_projects,
        classes=query.classes,
    )


def _day(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).date().isoformat()


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
    shorter: tuple[tuple[str, ...], ...] = ()  # what others write of it, which may not go on

    @property
    def match(self) -> str:
        """The FTS5 query of the rows that hold it."""
        own = [_quoted(way) + (" *" if self.is_beginning else "") for way in self.ways]
        return " OR ".join([*own, *map(_quoted, self.shorter)])


@dataclass(frozen=True, slots=True)
class Question:
    match: str  # the FTS5 query of the keyword leg, or "" when there is no word at all
    exact: str  # the FTS5 query of what is to be found as it stands (names and quoted phrases), or ""
    terms: tuple[Term, ...]  # what a right piece should hold
    named: float  # the share of the terms' weight that `exact` has
    also: tuple[Term, ...] = ()  # the caller's keywords, each of which may stand in a piece in place of terms


def keyword_query(text: str, keywords: Sequence[str] = ()) -> str:
    """The FTS5 query of the keyword leg, or "" when there is no word at all."""
    return question(text, keywords).match


def question(text: str, keywords: Sequence[str] = (), *, aside: str = "") -> Question:
    """What the text asks for.

    Every term is quoted and they are joined by OR, so nothing of the text can act as syntax. A quoted term is matched as a phrase of
    its parts: `ERR_CONN_42`, `src/app.py` and `retry-after` are looked for as they stand, beside each of their parts. What the caller
    put in double quotes stays one phrase.

    `aside`: words of the text that a right piece need not hold, such as "last week".
    """
    match: dict[str, None] = {}
    exact: dict[str, None] = {}
    terms: dict[tuple[str, ...], Term] = {}
    for phrase in QUOTED.findall(text):
        words = parts(RUN.sub(" ", phrase))
        if words:
            match[_quoted(words)] = None
        if len(words) > 1:
            exact[_quoted(words)] = None
        elif not words:
            exact.update((_of_run(run), None) for run in runs(phrase) if len(run) > 1)
    also = [term for keyword in keywords if (term := _keyword(keyword)).ways]
    match.update((_quoted(term.ways[0]) + (" *" if term.is_beginning else ""), None) for term in also)
    compounds = COMPOUND.findall(RUN.sub(" ", text))
    plain = [word.lower() for compound in compounds for word in PLAIN.findall(compound)]
    chosen = [word for word in plain if word not in STOP_WORDS] or plain
    chosen = [word for word in chosen if len(word) > SHORTEST_PREFIX or not is_unstemmed(word)] or chosen
    skipped = set(parts(aside))
    for compound in compounds:
        ways = _ways(compound)
        name = bool(ways) and (is_name(compound) or len(compounds) == 1)
        goes_on = name and all(may_go_on(way[-1]) for way in ways)
        shorter = _shorter(compound) if name else []
        for way in ways:
            match[_quoted(way) + (" *" if goes_on and len(way[-1]) >= SHORTEST_PREFIX else "")] = None
            if name:
                exact[_quoted(way)] = None
        for way in shorter:
            match[_quoted(way)] = exact[_quoted(way)] = None
        if name:
            terms[tuple(ways[0])] = Term(
                tuple(map(tuple, ways)),
                NAME_WEIGHT,
                is_name=True,
                is_beginning=goes_on,
                is_identifier=is_identifier(compound),
                shorter=tuple(map(tuple, shorter)),
            )
    named = {word for term in terms.values() for way in term.ways for word in way}
    is_single = not match and len(chosen) == 1 and len(chosen[0]) > SHORTEST_PREFIX and may_go_on(chosen[0])
    for word in chosen:
        if word in named or word in skipped:
            continue
        if is_unstemmed(word):
            beginning = word[: max(SHORTEST_PREFIX + 1, len(word) - ENDING)]
            match[_quoted([beginning]) + " *"] = None
            terms[(beginning,)] = Term(((beginning,),), min(len(word), LONGEST) ** 0.5, is_beginning=True)
        else:
            terms[(word,)] = Term(((word,),), min(len(word), LONGEST) ** 0.5, is_beginning=is_single)
    if is_single:
        match[_quoted(chosen) + " *"] = None
    else:
        # The numbers of a date stand in every text of that month or year; as a whole it is looked for all the same.
        match.update((_quoted([word]), None) for word in chosen if not (word in skipped and word.isdigit()))
    for run in runs(text):
        pairs = bigrams(run)
        match[_of_run(run)] = None
        if len(run) > 1:
            match.update((_quoted([pair]), None) for pair in pairs)
        terms.update(((pair,), Term(((pair,),), BIGRAM_WEIGHT, is_beginning=len(run) == 1)) for pair in pairs)
    # Last, so that many keywords do not push out the question's own words.
    match.update((_quoted(way), None) for term in also for way in term.ways[1:])
    total = sum(term.weight for term in terms.values())
    names = sum(term.weight for term in terms.values() if term.is_name)
    share = 1.0 if exact and not names else names / total if total else 0.0
    own = {way for term in terms.values() for way in term.ways}
    others = tuple(term for term in also if own.isdisjoint(term.ways))  # a word that is given twice counts once
    return Question(_joined(match), _joined(exact), tuple(terms.values())[:MOST_TERMS], share, others)


def is_unstemmed(word: str) -> bool:
    """Whether a word is of a script that no ending is known of, neither to Porter's stemmer nor to most models: Cyrillic, Greek, Arabic."""
    return not word[0].isascii() and not unicodedata.name(word[0], "").startswith("LATIN ")


def of_days(asked: Question, days: Sequence[str]) -> Question | None:
    """What finds the files of these ISO days, for a question that asks for nothing else; None for any other."""
    words = {word for term in asked.terms for way in term.ways for word in way}
    if asked.exact or asked.also or not words <= OF_ANY_DAY:
        return None
    return Question(_joined({_quoted(parts(day)): None for day in days}), "", (), 0.0)


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


def _shorter(compound: str) -> list[list[str]]:
    """The beginnings of a hash, by which others may have written it down."""
    return [[compound.lower()[:length]] for length in SHORT_HASH if length < len(compound)] if is_hash(compound) else []


def _quoted(words: Sequence[str]) -> str:
    return '"' + " ".join(words) + '"'


def _joined(terms: dict[str, None]) -> str:
    return " OR ".join(list(terms)[:MOST_TERMS])


WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTHS = tuple(name.lower() for name in calendar.month_name if name)
NUMBERS = {"one": 1, "a": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "couple of": 2}
MOST_BACK = 3660  # days
# One of these, or a digit, stands in every text that names a day.
TELLTALES = ("day", "week", "month", "year", "night", *MONTHS)
# Quoted text and code are content.
CONTENT = re.compile(r'"[^"]{0,200}"|“[^”]{0,200}”|`[^`]{0,200}`|(?<!\w)\'[^\']{0,200}\'(?!\w)')
_DIGIT = re.compile(r"\d")

_WEEKDAY = "|".join(WEEKDAYS)
_MONTH = "|".join(MONTHS)
_COUNT = r"\d{1,3}|" + "|".join(NUMBERS)


@dataclass(frozen=True, slots=True)
class Days:
    """Some days in a row, both ends included, and the words that named them."""

    first: date
    last: date
    words: str

    @property
    def name(self) -> str:
        return f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"

    def latest(self, most: int) -> list[str]:
        """The last so many of them, in ISO form, the latest first."""
        return [
            (self.last - timedelta(back)).isoformat() for back in range(min(most, (self.last - self.first).days + 1))
        ]

    def holds(self, day: str) -> bool:
        """Whether an ISO day is among them."""
        return self.first.isoformat() <= day <= self.last.isoformat()


def days_of(text: str, today: date) -> Days | None:
    """The days that the text speaks of, if it says so in one way only."""
    lower = text.lower()
    if not any(word in lower for word in TELLTALES) and not _DIGIT.search(text):
        return None
    text = CONTENT.sub(" | ", " ".join(text.split()))
    taken: list[tuple[int, int]] = []
    found: list[Days] = []
    for pattern, read in _FORMS:
        for match in pattern.finditer(text):
            if any(match.start() < end and start < match.end() for start, end in taken):
                continue
            days = read(match, today)
            if days is not None:
                taken.append(match.span())
                found.append(Days(*days, match[0]))
    if not found or any((days.first, days.last) != (found[0].first, found[0].last) for days in found):
        return None
    return Days(found[0].first, found[0].last, " ".join(days.words for days in found))


_Reading = Callable[[re.Match[str], date], tuple[date, date] | None]


def _iso(match: re.Match[str], _today: date) -> tuple[date, date] | None:
    try:
        day = date.fromisoformat(match[0])
    except ValueError:
        return None
    return day, day


def _named_day(match: re.Match[str], today: date) -> tuple[date, date] | None:
    """A day and a month, of the year that is said, else of the last such day."""
    try:
        day = date(int(match["year"] or today.year), MONTHS.index(match["month"].lower()) + 1, int(match["day"]))
        if match["year"] is None and day > today:
            day = day.replace(year=day.year - 1)
    except ValueError:
        return None
    return day, day


def _named_month(match: re.Match[str], today: date) -> tuple[date, date] | None:
    """A month, of the year that is said, else the last one that has begun; "since" goes on until today."""
    said = match.groupdict()
    number = MONTHS.index(said["month"].lower()) + 1
    year = int(said["year"]) if said.get("year") else today.year - (number > today.month)
    if not 1970 <= year <= today.year + 10:
        return None
    is_open = match[0].lower().startswith("since")
    return date(year, number, 1), today if is_open else date(year, number, calendar.monthrange(year, number)[1])


def _weekday(match: re.Match[str], today: date) -> tuple[date, date]:
    back = (today.weekday() - WEEKDAYS.index(match["weekday"].lower())) % 7 or 7
    return today - timedelta(back), today - timedelta(back)


def _relative_day(match: re.Match[str], today: date) -> tuple[date, date]:
    word = " ".join(match[0].lower().split())
    back = {"today": 0, "yesterday": 1, "last night": 1}.get(word, 2)
    return today - timedelta(back), today - timedelta(back)


def _last_span(match: re.Match[str], today: date) -> tuple[date, date]:
    """The calendar week, month or year before this one, or this one so far."""
    is_last = match["which"].lower() != "this"
    unit = match["unit"].lower()
    if unit == "week":
        monday = today - timedelta(today.weekday())
        return (monday - timedelta(7), monday - timedelta(1)) if is_last else (monday, today)
    if unit == "month":
        first = today.replace(day=1)
        end = first - timedelta(1)
        return (end.replace(day=1), end) if is_last else (first, today)
    year = today.year - is_last
    return date(year, 1, 1), date(year, 12, 31) if is_last else today


def _within(match: re.Match[str], today: date) -> tuple[date, date] | None:
    """The last so many days, weeks, months, up to today."""
    days = _length(match)
    return None if days is None else (today - timedelta(days), today)


def _ago(match: re.Match[str], today: date) -> tuple[date, date] | None:
    """So long ago, as exactly as it is said: days are meant to the day, weeks and months about."""
    days = _length(match)
    if days is None:
        return None
    slack = {"day": 0, "week": 3, "month": 15}[match["unit"].lower()]
    return today - timedelta(days + slack), min(today, today - timedelta(days - slack))


def _length(match: re.Match[str]) -> int | None:
    said = " ".join(match["count"].lower().split())
    count = NUMBERS.get(said) or (int(said) if said.isdigit() else 0)
    days = count * {"day": 1, "week": 7, "month": 30}[match["unit"].lower()]
    return days if 0 < days <= MOST_BACK else None


def _form(pattern: str, read: _Reading) -> tuple[re.Pattern[str], _Reading]:
    return re.compile(rf"(?<![\w/.-])(?:{pattern})(?![\w/-]|\.\w)", re.IGNORECASE), read


_YEAR = r"(?:,?\s+(?P<year>\d{4}))"
# In the order in which they are tried; what one has taken is no other's. Months and weekdays need a word before them or a year behind:
# "may" and "march" are verbs, and a "Sunday school" is no day.
_FORMS: tuple[tuple[re.Pattern[str], _Reading], ...] = (
    _form(r"\d{4}-\d{2}-\d{2}", _iso),
    _form(rf"(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<month>{_MONTH}){_YEAR}?", _named_day),
    _form(rf"(?P<month>{_MONTH})\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?{_YEAR}?", _named_day),
    _form(rf"(?P<month>{_MONTH}){_YEAR}", _named_month),
    _form(rf"(?:in|during|since)\s+(?P<month>{_MONTH})", _named_month),
    _form(rf"(?:on|last|this\s+past)\s+(?P<weekday>{_WEEKDAY})", _weekday),
    _form(r"today|yesterday|last\s+night|the\s+day\s+before\s+yesterday", _relative_day),
    _form(
        rf"(?:in|over|within|during)?\s*the\s+(?:last|past)\s+(?P<count>{_COUNT})\s+(?P<unit>day|week|month)s?", _within
    ),
    _form(r"(?P<which>last|this|previous)\s+(?P<unit>week|month|year)", _last_span),
    _form(rf"(?P<count>{_COUNT})\s+(?P<unit>day|week|month)s?\s+ago", _ago),
)
