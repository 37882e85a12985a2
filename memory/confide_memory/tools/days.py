"""Dates in a query: "yesterday", "last week", "on Monday", "in May", "2026-05-03".

Dates only influence the ranking: chunks of those days come first, and no chunk is left out, since a
text may mention another day than the one it was written on. A query with two different dates, or
with the words in quotes or code, gives no date.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTHS = tuple(name.lower() for name in calendar.month_name if name)
NUMBERS = {"one": 1, "a": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "couple of": 2}
MOST_BACK = 3660  # days
# Every text that names a day has one of these, or a digit.
TELLTALES = ("day", "week", "month", "year", "night", *MONTHS)
# Quoted text and code are content, not a date of the query.
CONTENT = re.compile(r'"[^"]{0,200}"|“[^”]{0,200}”|`[^`]{0,200}`|(?<!\w)\'[^\']{0,200}\'(?!\w)')
_DIGIT = re.compile(r"\d")

_WEEKDAY = "|".join(WEEKDAYS)
_MONTH = "|".join(MONTHS)
_COUNT = r"\d{1,3}|" + "|".join(NUMBERS)


@dataclass(frozen=True, slots=True)
class DayRange:
    """A range of days, both ends included, and the words that named it."""

    first: date
    last: date
    words: str

    @property
    def name(self) -> str:
        return f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"

    def latest(self, most: int) -> list[str]:
        """List the last days of the range, at most `most`, in ISO form, the latest first."""
        return [
            (self.last - timedelta(back)).isoformat() for back in range(min(most, (self.last - self.first).days + 1))
        ]

    def holds(self, day: str) -> bool:
        """Return True if an ISO day is in the range."""
        return self.first.isoformat() <= day <= self.last.isoformat()


def days_of(text: str, today: date) -> DayRange | None:
    """Return the days that the text names; None if there are none, or different ones."""
    lower = text.lower()
    if not any(word in lower for word in TELLTALES) and not _DIGIT.search(text):
        return None
    text = CONTENT.sub(" | ", " ".join(text.split()))
    taken: list[tuple[int, int]] = []
    found: list[DayRange] = []
    for pattern, read in _FORMS:
        for match in pattern.finditer(text):
            if any(match.start() < end and start < match.end() for start, end in taken):
                continue
            days = read(match, today)
            if days is not None:
                taken.append(match.span())
                found.append(DayRange(*days, match[0]))
    if not found or any((days.first, days.last) != (found[0].first, found[0].last) for days in found):
        return None
    return DayRange(found[0].first, found[0].last, " ".join(days.words for days in found))


_Reading = Callable[[re.Match[str], date], tuple[date, date] | None]


def _iso(match: re.Match[str], _today: date) -> tuple[date, date] | None:
    try:
        day = date.fromisoformat(match[0])
    except ValueError:
        return None
    return day, day


def _named_day(match: re.Match[str], today: date) -> tuple[date, date] | None:
    """Return the range of a day and a month, in the given year, else the last such day."""
    try:
        day = date(int(match["year"] or today.year), MONTHS.index(match["month"].lower()) + 1, int(match["day"]))
        if match["year"] is None and day > today:
            day = day.replace(year=day.year - 1)
    except ValueError:
        return None
    return day, day


def _named_month(match: re.Match[str], today: date) -> tuple[date, date] | None:
    """Return the range of a month, in the given year, else the last one that has begun; "since"
    extends it to today.
    """
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
    """Return the calendar week, month or year before this one, or the current one so far."""
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
    """Return the last days, weeks or months, up to today."""
    days = _length(match)
    return None if days is None else (today - timedelta(days), today)


def _ago(match: re.Match[str], today: date) -> tuple[date, date] | None:
    """Return the days around a distance from today: exact for days, about for weeks and months."""
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
# In the order in which they are tried; later forms skip text that an earlier one matched. Months
# and weekdays need a word before them or a year after: "may" and "march" are verbs, and "Sunday
# school" is no date.
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
