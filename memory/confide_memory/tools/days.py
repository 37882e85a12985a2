"""Days in a question: "yesterday", "letzte Woche", "on Monday", "in May", "2026-05-03", "3 mars
2026", as people write them in 21 languages.

Days only influence the ranking: chunks of those days come first, and no chunk is left out, since a
text may mention another day than the one it was written on. A question with two different days is
read as having no day, unless it names a range from one to the other. Days in quotes or code do not
count.
"""

from __future__ import annotations

import calendar
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cache
from typing import Final

from confide_memory.documents import STOP_WORDS
from confide_memory.tools.day_forms import PART_OF_DAY, Form, Reading, alternatives, form, leading
from confide_memory.tools.day_names import (
    ANY_DAY_PARTS,
    ANY_DAY_WORDS,
    COUNTS,
    IN_MONTH,
    RELATIVE_DAYS,
    SPANS,
    TWO,
    UNITS,
)
from confide_memory.tools.written_days import (
    DaySpan,
    dates_in,
    day_span,
    month_numbers,
    month_of,
    phrase,
    quarter_of,
    week_of,
    weekday_numbers,
    with_plain_digits,
)

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTHS = tuple(name.lower() for name in calendar.month_name if name)
NUMBERS = {"one": 1, "a": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "couple of": 2}
NUMBERS |= {"an": 1, "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "a dozen": 12, "fourteen": 14}
NUMBERS |= {
    "fifteen": 15,
    "eighteen": 18,
    "twenty": 20,
    "thirty": 30,
    "forty": 40,
    "fifty": 50,
    "sixty": 60,
    "ninety": 90,
}
MOST_BACK = 3660  # days
_FIRST_YEAR: Final = 1970
_LEAST_LEAP_YEARS: Final = 9
"""Years in a row of which at least one has a 29 February: 1897 to 1903 had none."""
MOST_DAYS_NAMED = 31
"""Days whose dates are searched for one by one; a longer time is searched for by its months."""
MOST_MONTHS_NAMED = 24
# Quoted text and code are content, not a date of the query.
CONTENT = re.compile(r'"[^"]{0,200}"|“[^”]{0,200}”|`[^`]{0,200}`|(?<!\w)\'[^\']{0,200}\'(?!\w)')
OF_ANY_DAY: Final = frozenset(
    """anything change changed changes day entries entry everything happen happened happening log logs note noted notes show something
    stored summarise summarize summary tell thing things went work worked working write wrote written""".split()  # noqa: SIM905
)
"""English words that add nothing to a question for days: "what happened yesterday"."""

_WEEKDAY = "|".join(WEEKDAYS)
_MONTH = "|".join(MONTHS)
_SHORT_MONTH = r"(?:jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\.?"
_COUNT = r"\d{1,3}|" + "|".join(name.replace(" ", r"\s+") for name in sorted(NUMBERS, key=len, reverse=True))
_UNITS: Final = "hour|day|week|fortnight|month|year"
_DAYS: Final = {"day": 1, "week": 7, "fortnight": 14, "month": 30, "year": 365}
_SLACK: Final = {"week": 3, "fortnight": 3, "month": 15, "year": 182}
"""How far the days "about two weeks ago" reach to both sides: half a unit."""
_HOURS_BACK: Final = 12
"""From so many hours on, a time up to now reaches into the day before."""


@dataclass(frozen=True, slots=True)
class DayRange:
    """A range of days, both ends included, and the words of the question that named it.

    Attributes:
        first, last: the first and the last day.
        words: the words that named the days.
        other: a second day that the words can mean, since 3/4/2026 is ambiguous; else None.
        is_all: True if the question asks for these days and nothing else.
        is_open: True if the days are not over, so that texts of other days may be about them: a day
            to come, or today unless the question asks for all of it.
    """

    first: date
    last: date
    words: str
    other: date | None = None
    is_all: bool = False
    is_open: bool = False

    @property
    def name(self) -> str:
        """The range as text for a reader."""
        if self.first == _EARLIEST:
            return f"the time until {self.last}"
        if self.other is not None:
            return f"{self.first} or {self.other}"
        return f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"

    @property
    def span(self) -> tuple[str, str]:
        """The first and the last day in ISO form. If the words can mean two days, these are both
        included.
        """
        days = (self.first, self.last, self.other or self.first)
        return min(days).isoformat(), max(days).isoformat()

    def latest(self, most: int) -> list[str]:
        """List the last `most` days of the range in ISO form, the latest first."""
        days = [self.last - timedelta(back) for back in range(min(most, (self.last - self.first).days + 1))]
        return [day.isoformat() for day in days] + ([self.other.isoformat()] if self.other else [])

    def holds(self, first: str, last: str | None = None) -> bool:
        """Return True if the time from `first` to `last` (ISO days) has a day in common with this
        range. Without `last`, the time is the single day `first`.
        """
        other = self.other.isoformat() if self.other else ""
        is_within = self.first.isoformat() <= (last or first) and first <= self.last.isoformat()
        return is_within or bool(other and first <= other <= (last or first))

    def is_named_in(self, text: str) -> bool:
        """Return True if a text names the day or month as the question does, without its year: it
        may mean that of another year, such as a day to come.
        """
        said = {word for word in _PLAIN_WORD.findall(self.words.casefold()) if _names_a_day(word)}
        return bool(said) and said <= set(_PLAIN_WORD.findall(text.casefold()))

    def phrases(self) -> list[str]:
        """Return the word sequences by which the search index finds texts of these days: one for
        each day, or for each month of a longer range. Empty for a range that is too long even for
        that.
        """
        if self.other is not None:
            return [phrase(DaySpan(day, day)) for day in (self.first, self.other)]
        days = (self.last - self.first).days + 1
        if days < MOST_DAYS_NAMED and DaySpan(self.first, self.last) != month_of(self.first.year, self.first.month):
            return [day.replace("-", " ") for day in self.latest(days)]
        months = self.last.year * 12 + self.last.month - self.first.year * 12 - self.first.month + 1
        if months > MOST_MONTHS_NAMED:
            return []
        start = self.first.year * 12 + self.first.month - 1
        return [f"{month // 12:04d} {month % 12 + 1:02d}" for month in range(start, start + months)]


_PLAIN_WORD = re.compile(r"[^\W_]+")


def _names_a_day(word: str) -> bool:
    return word.isdecimal() or word in month_numbers() or word in weekday_numbers()


@dataclass(frozen=True, slots=True)
class _NamedDays:
    """Days that words of a question name, and the place of the words in it."""

    start: int
    end: int
    first: date
    last: date
    is_stated: bool  # with its year: such days may be the ends of a range
    other: date | None = None


def days_of(text: str, today: date) -> DayRange | None:
    """Return the days that a question names, or None if it names no day or several different ones.
    `today` is the day from which words such as "yesterday" count.
    """
    text = CONTENT.sub(" | ", " ".join(text.split()))
    text = text if text.isascii() else unicodedata.normalize("NFC", text)
    plain = with_plain_digits(text)
    found: list[_NamedDays] = []
    for one in _all(plain, today):
        if not any(one.start < other.end and other.start < one.end for other in found):
            found.append(one)
    if not found:
        return None
    found.sort(key=lambda one: one.start)
    found = [_with_part(plain, one) for one in found]
    words = " ".join(text[one.start : one.end] for one in found)
    first, others = found[0], found[1:]
    if any((one.first, one.last) != (first.first, first.last) for one in others):
        if not _is_range(plain, found):
            return None
        whole = replace(first, end=found[1].end, last=found[1].last)
        words = text[whole.start : whole.end]
        return _range_of(whole, words, text, [whole], today)
    if first.other is None and (led := _led(plain, first, found[-1].end, today)) is not None:
        words = text[led.start : first.start] + words
        first, found = led, [led, *others]
    return _range_of(first, words, text, found, today)


def _range_of(named: _NamedDays, words: str, text: str, found: list[_NamedDays], today: date) -> DayRange:
    is_all = _is_all(text, found)
    is_open = named.first > today or (named.first == today and not is_all)
    return DayRange(named.first, named.last, words, named.other, is_all, is_open)


_WEEK_OF: Final = re.compile(
    r"\b(?:week\s+(?:of|starting|beginning|from)(?:\s+(?:on|the|monday))*|woche\s+(?:vom|ab|des)|semaine\s+du|semana\s+del?|settimana\s+del)"
    r"\s+\Z",
    re.IGNORECASE,
)
_PART: Final = re.compile(rf"\s+{PART_OF_DAY}", re.IGNORECASE)


def _with_part(text: str, named: _NamedDays) -> _NamedDays:
    """Return a day with the part of it that is named behind it, "yesterday evening"; for "the week of
    November 16" the week of the day.
    """
    if named.first != named.last:
        return named
    if led := _WEEK_OF.search(text, 0, named.start):
        monday = named.first - timedelta(named.first.weekday())
        return replace(named, start=led.start(), first=monday, last=monday + timedelta(6))
    part = _PART.match(text, named.end)
    return named if part is None else replace(named, end=part.end())


_EARLIEST: Final = date(_FIRST_YEAR, 1, 1)
"""The first day of a time without a beginning, "before May"."""
_ARTICLE: Final = r"(?:the|dem|den|der|le|la|el|il|o)?"
# Words before a day that mean another time than this day.
_SINCE_WORDS = re.compile(rf"\b(?:since|seit|depuis|desde|sinds|sedan)\s+{_ARTICLE}\s*\Z", re.IGNORECASE)
_AFTER = re.compile(
    rf"\b(?:after|nach|après|después\s+del?|despues\s+del?|dopo|depois\s+d[eoa]|efter|после|після)\s+{_ARTICLE}\s*\Z",
    re.IGNORECASE,
)
_BEFORE = re.compile(
    rf"\b(?:before|prior\s+to|vor|avant|antes\s+d(?:el?|[oa])|prima\s+d(?:i|el)|före|przed)\s+{_ARTICLE}\s*\Z",
    re.IGNORECASE,
)
_UNTIL = re.compile(
    rf"\b(?:until|till|up\s+to|bis(?:\s+zum)?|jusqu['’](?:au|à)|hasta|fino\s+a(?:l)?|até)\s*{_ARTICLE}\s*\Z",
    re.IGNORECASE,
)
_COUNTED_FROM = re.compile(
    r"\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)?day|night|morning|evening|week|weekend|month|year|hour|tag|abend|woche|monat|"
    r"(?:mon|diens|donners|frei|sams|sonn)tag|mittwoch|jour|semaine|d[ií]a|giorno)[a-z]*\s+\Z",
    re.IGNORECASE,
)
"""Before such words: "the day before 2026-05-03" is one day, which is near the named one."""
_OF_AN_EVENT = re.compile(r"['’]s\b", re.IGNORECASE)


def _led(text: str, named: _NamedDays, end: int, today: date) -> _NamedDays | None:
    """Return the time that days mean with the word before them: "since", "after", "before", "until";
    None without such a word, and for a time that is not over, since "due before Friday" asks for it.
    """
    first, last = named.first, named.last
    # "After yesterday's deploy" may be on the same day.
    other = timedelta(0) if _OF_AN_EVENT.match(text, end) else timedelta(1)
    if led := _SINCE_WORDS.search(text, 0, named.start):
        last = max(last, today)
    elif led := _AFTER.search(text, 0, named.start):
        first, last = (last if other else first) + other, today
    elif led := _BEFORE.search(text, 0, named.start):
        first, last = _EARLIEST, (first if other else last) - other
    elif led := _UNTIL.search(text, 0, named.start):
        first = _EARLIEST
    if led is None or first > last or last > today or _COUNTED_FROM.search(text, 0, led.start()):
        return None
    return replace(named, start=led.start(), first=first, last=last)


_TO = re.compile(
    r"\s*(?:to|until|till|through|up to|bis|bis zum|al|au|à|a|ao|até|hasta|tot|tot en met|til|do|по|до|"
    r"--?|–|—|~|〜|から|到|至|부터)\s*"
    r"(?:the|le|el|o|il|den)?\s*",
    re.IGNORECASE,
)
_FROM = re.compile(r"\b(?:from|von|vom|de|del|du|dal|od|van|fra|från)\s+(?:the|dem|le|el)?\s*\Z", re.IGNORECASE)
_AND = re.compile(r"\s*(?:and|und|y|et|e|en|och|og|i|и|та)\s*(?:the|le|el|o|il|den)?\s*", re.IGNORECASE)
_BETWEEN = re.compile(r"(?:between|zwischen|entre|tra|fra|tussen|mellan|mellem|między|между|між)\W", re.IGNORECASE)


def _is_range(text: str, found: list[_NamedDays]) -> bool:
    """Return True if two dates of a question are the ends of a time: "from 3 to 9 March 2026"."""
    if len(found) != 2 or any(one.other is not None for one in found):
        return False
    if not all(one.is_stated for one in found):  # "Monday to Friday" is each week's
        is_led = _FROM.search(plain := text[: found[0].start]) or _BETWEEN.search(plain)
        if not is_led or any(one.first != one.last for one in found):
            return False
    joint = text[found[0].end : found[1].start]
    is_joined = _TO.fullmatch(joint) or (_AND.fullmatch(joint) and _BETWEEN.search(text[: found[0].start]))
    return bool(is_joined) and found[0].first <= found[1].last


_ANY_DAY: Final = frozenset(ANY_DAY_WORDS.split())
_EDGES: Final = "?!.,:;¿¡؟。？！、，،।|\"'()"


def _is_all(text: str, found: list[_NamedDays]) -> bool:
    """Return True if all other words of a question only ask what was, in any language."""
    rest = text
    for one in reversed(found):
        rest = f"{rest[: one.start]} {rest[one.end :]}"
    words = (word.strip(_EDGES).casefold() for word in rest.split())
    return all(
        not word or word in OF_ANY_DAY or word in _ANY_DAY or word in STOP_WORDS or _parts().fullmatch(word)
        for word in words
    )


@cache
def _parts() -> re.Pattern[str]:
    parts = sorted(ANY_DAY_PARTS.split(), key=len, reverse=True)
    return re.compile(f"(?:{'|'.join(map(re.escape, parts))}){{1,16}}")


def _all(text: str, today: date) -> Iterator[_NamedDays]:
    """Yield what each form finds, the surest forms first."""
    for match in _SINCE.finditer(text):
        if days := _since_month(match, today):
            yield _NamedDays(match.start(), match.end(), *days, is_stated=False)
    yield from _of_forms(leading(), text, today)
    for one in dates_in(text):
        first, *other = one.spans
        yield _NamedDays(
            one.start, one.end, first.first, first.last, is_stated=True, other=other[0].first if other else None
        )
    yield from _of_forms((*_FORMS, *_forms()), text, today)


def _of_forms(forms: Iterable[Form], text: str, today: date) -> Iterator[_NamedDays]:
    for pattern, read in forms:
        for match in pattern.finditer(text):
            days = read(match, today)
            if days is not None:
                first, last, *other = days
                yield _NamedDays(
                    match.start(), match.end(), first, last, is_stated=False, other=other[0] if other else None
                )


def _named_day(match: re.Match[str], today: date) -> tuple[date, date] | None:
    """Return the range of a day and a month, in the given year, else the last such day."""
    named = match["month"].casefold().rstrip(".")
    month = month_numbers().get(named) or int("0" + re.sub(r"\D", "", match["month"]))
    for year in range(today.year, today.year - _LEAST_LEAP_YEARS, -1):  # the last 29 February may be long ago
        span = day_span(year, month, int(match["day"]))
        if span is not None and span.first <= today:
            return span.first, span.last
    return None


def _named_month(match: re.Match[str], today: date) -> tuple[date, date] | None:
    """Return the range of the last such month that has begun; "since" extends it to today."""
    number = month_numbers().get(match["month"].casefold()) or int("0" + re.sub(r"\D", "", match["month"]))
    span = month_of(today.year - (number > today.month), number)
    if span is None:
        return None
    is_open = match[0].casefold().startswith(("since", "seit", "desde", "depuis", "dal"))
    return span.first, today if is_open else span.last


def _since_month(match: re.Match[str], today: date) -> tuple[date, date] | None:
    span = month_of(int(match["year"]), month_numbers()[match["month"].casefold()])
    return None if span is None or span.first > today else (span.first, today)


_SINCE = re.compile(rf"\bsince\s+(?P<month>{_MONTH}),?\s+(?P<year>[0-9]{{4}})(?![0-9])", re.IGNORECASE)


def _weekday(match: re.Match[str], today: date) -> tuple[date, date] | None:
    number = weekday_numbers().get(match["weekday"].casefold())
    if number is None:
        return None
    back = (today.weekday() - number) % 7 or 7
    return today - timedelta(back), today - timedelta(back)


def _since_weekday(match: re.Match[str], today: date) -> tuple[date, date] | None:
    found = _weekday(match, today)
    return None if found is None else (found[0], today)


def _weekend(_match: re.Match[str], today: date) -> tuple[date, date]:
    """Return the last Saturday and Sunday that are over."""
    sunday = today - timedelta((today.weekday() + 1) % 7 or 7)
    return sunday - timedelta(1), sunday


def _week(match: re.Match[str], today: date) -> tuple[date, date] | None:
    """Return the calendar week of that number, in the given year, else the last that has begun."""
    said = match.groupdict()
    year = int(said["year"] or said.get("of") or today.isocalendar().year)
    span = week_of(year, int(said["week"] or said["at"] or 0))
    if span is not None and span.first > today and not (said["year"] or said.get("of")):
        span = week_of(year - 1, int(said["week"]))
    return None if span is None else (span.first, span.last)


def _quarter(match: re.Match[str], today: date) -> tuple[date, date] | None:
    """Return the quarter of that number, in the given year, else the last that has begun; without a
    number the one before this one.
    """
    said = match.groupdict()
    quarter = int(said["quarter"] or said["at"] or (today.month - 1) // 3)
    year = int(said["year"] or said["of"] or today.year - (not quarter))
    quarter = quarter or 4
    if not (said["year"] or said["of"]) and date(year, 3 * quarter - 2, 1) > today:
        year -= 1
    return quarter_of(year, quarter)


def _year(match: re.Match[str], today: date) -> tuple[date, date] | None:
    year = int(match["year"])
    return (date(year, 1, 1), date(year, 12, 31)) if year <= today.year else None


def _relative_day(match: re.Match[str], today: date) -> tuple[date, date]:
    away = timedelta(_relative()[" ".join(match[0].casefold().split())])
    return today + away, today + away


def _span(unit: str, which: int, today: date) -> tuple[date, date]:
    """Return the calendar week, month or year that many after this one, or the current one so far
    (0).
    """
    if unit == "week":
        first = today - timedelta(today.weekday() - 7 * which)
        last = first + timedelta(6)
    elif unit == "month":
        month = today.year * 12 + today.month - 1 + which
        first = date(month // 12, month % 12 + 1, 1)
        last = first.replace(day=calendar.monthrange(first.year, first.month)[1])
    else:
        first, last = date(today.year + which, 1, 1), date(today.year + which, 12, 31)
    return first, last if which else today


def _last_span(match: re.Match[str], today: date) -> tuple[date, date]:
    return _span(match["unit"].lower(), 0 if match["which"].lower() == "this" else -1, today)


def _other_span(match: re.Match[str], today: date) -> tuple[date, date]:
    return _span(*_spans()[" ".join(match[0].casefold().split())], today)


def _within(match: re.Match[str], today: date) -> tuple[date, date] | None:
    """Return the last hours, days, weeks, months or years, up to today."""
    count, unit = _length(match)
    days = (count + 24 - _HOURS_BACK) // 24 if unit == "hour" else count * _DAYS[unit]
    return (today - timedelta(days), today) if count and days <= MOST_BACK else None


def _ago(match: re.Match[str], today: date) -> tuple[date, date] | None:
    """Return the days around a distance from today: exact for days, about for longer units."""
    count, unit = _length(match)
    days = round(count / 24) if unit == "hour" else count * _DAYS[unit]
    # "He moved four years ago" is what a text says, and finds it by its words.
    if not count or days > MOST_BACK or (unit == "year" and count > 1):
        return None
    slack = _SLACK.get(unit, 0)
    return today - timedelta(days + slack), min(today, today - timedelta(days - slack))


def _length(match: re.Match[str]) -> tuple[int, str]:
    """Return how many of which unit of time a form names; one if it names no number."""
    said = match.groupdict()
    unit = (said.get("unit") or said.get("by") or "").casefold()
    if unit in (two := _two_of()):
        return 2, two[unit]
    named = " ".join((said.get("count") or said.get("counted") or "1").casefold().split())
    count = NUMBERS.get(named) or _counts().get(named) or (int(named) if named.isdecimal() else 0)
    return count, _units().get(unit, unit)


# English forms, in the order in which they are tried; later forms skip text that an earlier one
# matched. Months and weekdays need a word before them or a year after: "may" and "march" are verbs,
# and "Sunday school" is no date.
_FORMS: tuple[Form, ...] = (
    form(rf"(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<month>{_MONTH})(?!,?\s+\d{{4}})", _named_day),
    form(rf"(?P<month>{_MONTH})\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?!,?\s+\d{{4}})", _named_day),
    form(rf"(?P<month>{_SHORT_MONTH})\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?!,?\s+\d{{4}}|:)", _named_day),
    form(rf"(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\s+(?P<month>{_SHORT_MONTH})(?!,?\s+\d{{4}})", _named_day),
    form(rf"(?:in|during|since)\s+(?P<month>{_MONTH})(?!,?\s+\d{{4}})", _named_month),
    form(rf"since\s+(?:last\s+)?(?P<weekday>{_WEEKDAY})", _since_weekday),
    form(rf"(?:on|last|this\s+past)\s+(?P<weekday>{_WEEKDAY})", _weekday),
    form(r"(?:last|past|over\s+the|(?:on|at)\s+the|letztes|letztem|am|vergangenes)\s+(?:weekend|wochenende)", _weekend),
    form(
        r"(?:le\s+)?week-?end\s+dernier|(?:el\s+)?fin\s+de\s+semana\s+pasado|lo\s+scorso\s+(?:weekend|fine\s+settimana)",
        _weekend,
    ),
    form(
        r"(?:(?:in|during|of|since|from)\s+(?:calendar\s+)?week|calendar\s+week|kw|kalenderwoche|cw)\s*(?P<week>\d{1,2})"
        r"(?:[\s/,]+(?P<year>20\d\d))?|(?P<of>20\d\d)-?W(?P<at>\d\d)",
        _week,
    ),
    form(
        r"(?:in|during|of|for|since|from|im)\s+Q(?P<quarter>[1-4])(?:[\s/,]+(?P<year>20\d\d))?"
        r"|(?P<of>20\d\d)[\s/-]?Q(?P<at>[1-4])|(?:last|previous)\s+quarter",
        _quarter,
    ),
    form(r"(?:in|during|in\s+the\s+year|im\s+jahr|en|nel|em)\s+(?P<year>19[7-9]\d|20\d\d)(?![\s,.:]*\d|\s*%)", _year),
    form(
        rf"(?:(?:in|over|within|during)\s+)?(?:the\s+)?(?:last|past)\s+(?P<count>{_COUNT})\s+(?P<unit>{_UNITS})s?",
        _within,
    ),
    form(r"(?:(?:in|over|within|during)\s+)?(?:the\s+)?(?:last|past)\s+(?P<unit>hour|fortnight)", _within),
    form(r"(?P<which>last|this|previous)\s+(?P<unit>week|month|year)(?!\s+of\b)", _last_span),
    form(rf"(?<!half )(?P<count>{_COUNT})\s+(?P<unit>{_UNITS})s?\s+ago", _ago),
)

# Scripts whose words have signs that are no letters to Python: a word must not end before one.
_SIGNS = "\u0300-\u036f\u064b-\u0652\u0900-\u0dff"
_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"


def _word_form(words: list[str], read: Reading) -> Form:
    """Return the form of some words: of whole words, or of letters in scripts without blanks."""
    ordered = sorted(words, key=len, reverse=True)
    plain = [re.escape(word).replace(r"\ ", r"\s+") for word in ordered if not re.match(f"[{_UNSPACED}]", word)]
    unspaced = [re.escape(word).replace(r"\ ", r"\s?") for word in ordered if re.match(f"[{_UNSPACED}]", word)]
    pattern = rf"(?<![\w{_SIGNS}/.-])(?:{'|'.join(plain)})(?![\w{_SIGNS}/-]|\.\w)"
    return re.compile(f"{pattern}|{'|'.join(unspaced)}" if unspaced else pattern, re.IGNORECASE), read


@cache
def _relative() -> dict[str, int]:
    return {word.replace("_", " "): away for away, words in RELATIVE_DAYS for word in words.split()}


@cache
def _spans() -> dict[str, tuple[str, int]]:
    return {word.replace("_", " "): (unit, which) for unit, which, words in SPANS for word in words.split()}


@cache
def _counts() -> dict[str, int]:
    return {word: count for count, words in COUNTS for word in words.split()}


@cache
def _two_of() -> dict[str, str]:
    return {word: unit for unit, words in TWO for word in words.split()}


@cache
def _units() -> dict[str, str]:
    return {word: unit for unit, words in UNITS for word in words.split()}


# German and Dutch "hier" is here; "la mañana" and "heute Morgen" are no tomorrow.
_HERE = re.compile(
    r"\b(?:ist|sind|wir|ich|was|wie|wo|wer|der|die|das|und|mit|haben|hat|gibt|steht|nicht|het|een|wat|van)\b",
    re.IGNORECASE,
)
_MORNING = re.compile(r"(?:\b(?:la|esta|cada|guten|heute|gestern|diesen|jeden|am|god|goede)|-)\s*\Z", re.IGNORECASE)


def _relative_of(match: re.Match[str], today: date) -> tuple[date, date] | None:
    word, before = match[0].casefold(), match.string[: match.start()]
    if word == "hier" and _HERE.search(match.string):
        return None
    if word in ("morgen", "mañana") and _MORNING.search(before):
        return None
    return _relative_day(match, today)


def _bare(pattern: str, read: Reading) -> Form:
    return re.compile(pattern, re.IGNORECASE), read


_BEGIN: Final = rf"(?<![\w{_SIGNS}/.-])"
_END: Final = rf"(?![\w{_SIGNS}/-]|\.\w)"


@cache
def _forms() -> tuple[Form, ...]:
    """Return the forms of all languages, built when the first question is read."""
    short = "mai|maj|mei|мая|мае|май|जून|জুন|جون|آب|مئی"
    month = f"(?P<month>{alternatives(name for name in month_numbers() if len(name) > 3)}|{short})"
    weekdays = [name for name in weekday_numbers() if len(name) > 3]
    weekday = alternatives(weekdays)
    own_script = re.compile("[\u0430-\u0457\u0600-\u0dff]")
    others = alternatives(filter(own_script.match, weekdays))
    return (
        _bare(
            rf"{_BEGIN}(?P<day>[0-9]{{1,2}})(?:er|[.º])?\s+(?:de\s+|di\s+)?{month}{_END}"
            rf"(?!\.?,?\s+(?:de\s+|del\s+)?[0-9]{{4}})",
            _named_day,
        ),
        _bare(
            r"(?<![0-9年년])(?P<month>[0-9]{1,2}\s?[月월])\s?(?P<day>[0-9]{1,2})\s?[日號号일](?!\s?[前전])", _named_day
        ),
        _word_form([word.replace("_", " ") for _, words in RELATIVE_DAYS for word in words.split()], _relative_of),
        _word_form([word.replace("_", " ") for _, _, words in SPANS for word in words.split()], _other_span),
        _bare(
            rf"{_BEGIN}(?:am|vom|seit|ab|bis|zum)\s+(?:dem\s+)?(?P<day>[0-9]{{1,2}})\.\s?(?P<month>[0-9]{{1,2}})(?:\.(?![0-9])|{_END})",
            _named_day,
        ),
        *_distances(),
        _bare(
            rf"{_BEGIN}(?:am|letzten|letzter|vergangenen|vorigen|el pasado|el|scorso|na|no|op|afgelopen|i|w|we|в|во|у)"
            rf"\s+(?P<weekday>{weekday}){_END}",
            _weekday,
        ),
        _bare(rf"{_BEGIN}(?P<weekday>{weekday})\s+(?:dernier|pasado|scorso|scorsa|passada|passado){_END}", _weekday),
        _bare(rf"{_BEGIN}(?P<weekday>{others}){_END}", _weekday),
        _bare(
            r"(?:(?:上|这|這)?(?:星期|周|週|礼拜|禮拜)(?P<cn>[一二三四五六日天])|(?P<jk>[月火水木金土日월화수목금토일])(?:曜日|요일))",
            _asian_weekday,
        ),
        _bare(
            rf"{_BEGIN}(?:{'|'.join(map(re.escape, IN_MONTH.split()))})\s+{month}{_END}(?!\.?,?\s+(?:de\s+|del\s+)?[0-9]{{4}})",
            _named_month,
        ),
        _bare(rf"{_BEGIN}{month}\s+(?:में|মাসে|میں){_END}", _named_month),
        _bare(r"(?<![0-9年년])(?<!年\s)(?<!년\s)(?P<month>[0-9]{1,2}\s?[月월])(?![0-9\s]*[0-9日曜])", _named_month),
    )


def _distances() -> tuple[Form, ...]:
    """Return the forms of distances from today, "vor drei Tagen", in all languages."""
    units = alternatives(_units())
    counts = f"[0-9]{{1,3}}|{alternatives(_counts())}"
    return (
        _bare(
            rf"{_BEGIN}(?:vor|hace|il y a|há|ha)\s+(?P<count>{counts})\s+(?P<unit>{units}){_END}"
            rf"|{_BEGIN}(?P<counted>{counts})\s+(?P<by>{units})\s+(?:fa|geleden|sedan|siden|temu|назад|тому|önce|पहले|আগে|پہلے|atrás){_END}",
            _ago,
        ),
        _bare(
            rf"{_BEGIN}(?:قبل|منذ)\s+(?:(?P<count>{counts})\s+)?(?P<unit>{units}|{alternatives(_two_of())}){_END}(?!\s*[0-9])"
            rf"|{_BEGIN}(?P<by>{units})\s+(?:temu|назад|тому){_END}",
            _ago,
        ),
        _bare(
            rf"{_BEGIN}(?:letzten|vergangenen|últimos|últimas|ultimos|ultimas|ultimi|ultime|laatste|afgelopen|senaste|sidste)"
            rf"\s+(?P<count>{counts})\s+(?P<unit>{units}){_END}"
            rf"|{_BEGIN}(?P<counted>{counts})\s+(?:derniers|dernières|dernieres)\s+(?P<by>{units}){_END}",
            _within,
        ),
        _bare(
            r"(?<![0-9])(?P<count>[0-9]{1,3}|[一二三四五六七八九十两兩한두세네]|일(?=주))\s?"
            r"(?P<unit>小时|小時|時間|天|日|周|週間|週|个星期|個星期|个月|個月|か月|ヶ月|カ月|年|시간|일|주일|주|개월|달|년)\s?(?:以?前|전)",
            _ago,
        ),
    )


def _asian_weekday(match: re.Match[str], today: date) -> tuple[date, date] | None:
    said = match["cn"] or match["jk"]
    number = max(
        letters.find(said) for letters in ("一二三四五六日", "一二三四五六天", "月火水木金土日", "월화수목금토일")
    )
    back = (today.weekday() - number) % 7 or 7
    return today - timedelta(back), today - timedelta(back)
