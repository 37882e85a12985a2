"""Reads the dates that a stored text states: in its path, its front matter, its headings, at the
beginning of its entries, and anywhere in its lines.

A date is read only if it exists in the calendar, and is from 1970 to 2099. Years have four digits,
or two in dates such as `24.11.26` and `11/24/26`, from 2020 to 2039. The ambiguous `3/4/2026` is
read as both days if a text mentions it, and ignored if it would date the text. At most `MOST_DATES`
dates are read from one text, so reading costs the same for any text.
"""

from __future__ import annotations

import calendar
import re
import unicodedata
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from functools import cache
from itertools import islice
from typing import Final, NamedTuple

from confide_memory.documents import is_note
from confide_memory.tools.day_names import MONTHS, WEEKDAYS

MOST_DATES: Final = 16
"""Dates that are read of one text. A chunk has fewer; a list of numbers may look like thousands."""
_WIDEST_ENTRY_DAYS: Final = 31
"""Entries in one chunk that are further apart date nothing: it is a list of dates, no log."""
_FIRST_YEAR, _LAST_YEAR = 1970, 2099
_MATTER_CHARS: Final = 4096
"""Front matter is searched for a date up to here."""

# Four digits that may be a year, and how far a date reaches before and behind it.
_YEAR = re.compile(r"(?<![0-9])(?:19[7-9][0-9]|20[0-9]{2})(?![0-9])")
_REACH: Final = 48
_WORD = r"[^\s\d.,،;:()\[\]/|*_#-]{2,24}(?:[ ](?:الثاني|الأول))?"
_TH = r"(?:st|nd|rd|th|er|ère|re|[.º°ª])?"
_OF = r"(?:of|de|del|do|di|du|d['’])"
# A number next to one of these is part of a path, a version, an address or a longer number.
_BEFORE = r"(?<![A-Za-z0-9_/.-])"
_BEHIND = r"(?:(?=[T_][0-9]{2})|(?![A-Za-z0-9_/-]|\.[A-Za-z0-9]))"

# Behind a year. Each has the groups month and day, or month alone.
_YEAR_FIRST = (
    re.compile(rf"([-/.])(?P<m>[0-9]{{1,2}})\1(?P<d>[0-9]{{1,2}}){_BEHIND}"),
    re.compile(r"\s?[年년]\s?(?P<m>[0-9]{1,2})\s?[月월](?:\s?(?P<d>[0-9]{1,2})\s?[日號号일])?"),
    re.compile(rf"\.\s(?P<m>[0-9]{{1,2}})\.\s(?P<d>[0-9]{{1,2}})\.?{_BEHIND}"),
    re.compile(rf"\.?\s+(?P<name>{_WORD})\.?\s+(?P<d>[0-9]{{1,2}})(?![0-9])"),
)
# Before a year, up to it.
_YEAR_LAST = (
    re.compile(rf"{_BEFORE}(?P<a>[0-9]{{1,2}})([-/.])(?P<b>[0-9]{{1,2}})\2\Z"),
    re.compile(rf"{_BEFORE}(?P<d>[0-9]{{1,2}})\.\s(?P<m>[0-9]{{1,2}})\.\s\Z"),
    re.compile(
        rf"{_BEFORE}(?P<d>[0-9]{{1,2}}){_TH}(?:\s*-?|\s+{_OF}\s*)(?P<name>{_WORD})"
        rf"(?:\.?[,،]?\s+(?:{_OF}\s+)?|-)\Z"
    ),
    re.compile(rf"(?P<name>{_WORD})\.?\s+(?P<d>[0-9]{{1,2}})(?:st|nd|rd|th)?(?:,\s*|\s+)\Z"),
    re.compile(rf"(?P<name>{_WORD})\.?,?\s+(?:{_OF}\s+)?\Z"),
)
_JOINTS: Final = frozenset("-/.")
"""Characters between the numbers of a date without blanks."""
VERSION: Final = re.compile(r"(?:version|release|released|ver|build|section|chapter|ubuntu|v)\.?\s*\Z", re.IGNORECASE)
"""Before numbers that are no date."""
_SHORT_YEAR = re.compile(
    r"(?<![\w./:-])(?:(?P<a>[0-3]?[0-9])/(?P<b>[0-3]?[0-9])/|(?P<d>[0-3][0-9])\.(?P<m>[01][0-9])\.)(?P<year>[23][0-9])"
    r"(?![\w/-]|[.,:][0-9]|\.[A-Za-z])"
)
"""A date with a year of two digits. With points, a day and a month of one digit may be a version."""
_SHORT_YEARS: Final = ("/2", "/3", ".2", ".3")
"""The beginnings of such years with the mark before them."""
_DIGITS: Final = {first + value: str(value) for first in (0x660, 0x6F0, 0x966, 0x9E6, 0xFF10) for value in range(10)}
"""Digits of Arabic, Persian, Hindi and Bengali, and full-width ones, one character each."""


class DaySpan(NamedTuple):
    """Consecutive days, from the first to the last, both included."""

    first: date
    last: date

    @property
    def is_day(self) -> bool:
        return self.first == self.last

    def within(self, other: DaySpan) -> bool:
        """Return True if all days of this span are in the other span."""
        return other.first <= self.first and self.last <= other.last


class WrittenDay(NamedTuple):
    """A date in a text, from the character `start` to `end`. `spans` has the one or two meanings
    that the date can have.
    """

    start: int
    end: int
    spans: tuple[DaySpan, ...]


def day_span(year: int, month: int, day: int) -> DaySpan | None:
    """Return the span of one day, or None if this day does not exist in the calendar."""
    if not _FIRST_YEAR <= year <= _LAST_YEAR:
        return None
    try:
        found = date(year, month, day)
    except ValueError:
        return None
    return DaySpan(found, found)


def month_of(year: int, month: int) -> DaySpan | None:
    """Return the span of a month, or None if the month or the year is out of range."""
    if not (_FIRST_YEAR <= year <= _LAST_YEAR and 1 <= month <= 12):
        return None
    return DaySpan(date(year, month, 1), date(year, month, calendar.monthrange(year, month)[1]))


def week_of(year: int, week: int) -> DaySpan | None:
    """Return the span of an ISO week, Monday to Sunday, or None if the year has no such week."""
    if not _FIRST_YEAR <= year <= _LAST_YEAR:
        return None
    try:
        monday = date.fromisocalendar(year, week, 1)
    except ValueError:
        return None
    return DaySpan(monday, monday + timedelta(6))


def quarter_of(year: int, quarter: int) -> DaySpan | None:
    """Return the span of a quarter (1 to 4) of a year, or None if the quarter or the year is out of
    range.
    """
    first, last = month_of(year, 3 * quarter - 2), month_of(year, 3 * quarter)
    return DaySpan(first.first, last.last) if first and last else None


@cache
def month_numbers() -> dict[str, int]:
    """Return the names of the months in lower case, each with its number from 1."""
    return {name.replace("_", " "): number for number, names in enumerate(MONTHS, 1) for name in names.split()}


@cache
def weekday_numbers() -> dict[str, int]:
    """Return the names of the weekdays in lower case, each with its number; Monday is 0."""
    return {name: number for number, names in enumerate(WEEKDAYS) for name in names.split()}


def with_plain_digits(text: str) -> str:
    """Return the text with digits of other scripts replaced by ASCII digits. The positions of
    characters do not change.
    """
    return text if text.isascii() else text.translate(_DIGITS)


def dates_in(text: str, *, most: int = MOST_DATES) -> list[WrittenDay]:
    """Return the dates with a year that a text states, in order and at most `most`: days, and
    months such as "October 2026".
    """
    text = with_plain_digits(text)
    found: list[WrittenDay] = []
    for tried, year in enumerate(_YEAR.finditer(text)):
        if tried == most:
            break
        date_here = _behind_year(text, year) or _before_year(text, year)
        if date_here is not None and (not found or date_here.start >= found[-1].end):
            found.append(date_here)
    short = [one for match in islice(_SHORT_YEAR.finditer(text), most) if (one := _short_date(text, match))]
    return sorted([*found, *short], key=lambda one: one.start)[:most] if short else found


def _short_date(text: str, match: re.Match[str]) -> WrittenDay | None:
    year = 2000 + int(match["year"])
    if match["d"] is None:
        spans = _of_numbers(int(match["a"]), int(match["b"]), year, "/")
    else:
        spans = _of_numbers(int(match["d"]), int(match["m"]), year, ".")
    if not spans or VERSION.search(text, max(0, match.start() - _REACH), match.start()):
        return None
    return WrittenDay(*match.span(), spans)


def _may_have_dates(text: str) -> bool:
    """Return True if a text has what may be a year; fast, since most texts have none."""
    plain = with_plain_digits(text)
    return bool(_YEAR.search(plain)) or any(begin in plain for begin in _SHORT_YEARS)


def _behind_year(text: str, year: re.Match[str]) -> WrittenDay | None:
    start, stop = year.span()
    if start and re.match(r"[A-Za-z0-9_/.-]", text[start - 1]):
        return None
    behind = text[stop : stop + _REACH]
    for form in _YEAR_FIRST:
        if match := form.match(behind):
            said = match.groupdict()
            number = _number(said)
            days = int(said["d"]) if said["d"] else None
            span = month_of(int(year[0]), number) if days is None else day_span(int(year[0]), number, days)
            return WrittenDay(start, stop + match.end(), (span,)) if span else None
    return None


def _before_year(text: str, year: re.Match[str]) -> WrittenDay | None:
    start, stop = year.span()
    # Behind a dash another date may follow.
    if re.match(r"[A-Za-z0-9_/]|-(?![0-9]{1,2}\.[0-9])|\.[A-Za-z0-9]", text[stop : stop + 5]):
        return None
    joint = text[start - 1 : start]
    forms = _YEAR_LAST[1:] if joint.isspace() else (_YEAR_LAST[0], _YEAR_LAST[2]) if joint in _JOINTS else ()
    begin = max(0, start - _REACH)
    before = text[begin:start]
    for form in forms:
        match = form.search(before)
        if match is None:
            continue
        said = match.groupdict()
        if "a" in said:
            if match[2] == "." and VERSION.search(before, 0, match.start()):
                return None
            spans = _of_numbers(int(said["a"]), int(said["b"]), int(year[0]), match[2])
        elif not (number := _number(said)):
            continue
        elif "d" in said:
            span = day_span(int(year[0]), number, int(said["d"]))
            spans = (span,) if span else ()
        else:
            span = month_of(int(year[0]), number)
            spans = (span,) if span else ()
        return WrittenDay(begin + match.start(), stop, spans) if spans else None
    return None


def _number(said: dict[str, str | None]) -> int:
    """Return the number of the month that a form names, 0 if it names no month."""
    if (digits := said.get("m")) is not None:
        return int(digits)
    name = (said.get("name") or "").casefold()
    return month_numbers().get(name if name.isascii() else unicodedata.normalize("NFC", name), 0)


def _of_numbers(one: int, other: int, year: int, mark: str) -> tuple[DaySpan, ...]:
    """Return the days that two numbers and a year can mean. With points the day is first
    everywhere; with slashes and dashes the month may be.
    """
    spans = [day_span(year, other, one)]
    if mark != ".":
        spans.append(day_span(year, one, other))
    return tuple(dict.fromkeys(span for span in spans if span))


def phrase(span: DaySpan) -> str:
    """Return the words under which the index has a day or a month: "2026 03 03", "2026 03"."""
    return f"{span.first:%Y %m %d}" if span.is_day else f"{span.first:%Y %m}"


def other_forms(text: str) -> list[str]:
    """Return the index words of the dates in a text that are not written like 2026-03-03."""
    if not _may_have_dates(text):
        return []
    found = [phrase(span) for one in dates_in(text) for span in one.spans if not _is_plain(text[one.start : one.end])]
    return list(dict.fromkeys(found))


_PLAIN = re.compile(r"[0-9]{4}[-/.][0-9]{2}[-/.][0-9]{2}")


def _is_plain(stated: str) -> bool:
    return _PLAIN.fullmatch(stated) is not None


# The path ----------------------------------------------------------------------------------------

_PATH_DAYS = (
    re.compile(r"(?<![0-9])([0-9]{4})([-_.]|___|%2[Ff])([0-9]{1,2})\2([0-9]{1,2})(?![0-9])"),
    # A folder for each year and each month: 2025/01/19, 2025/01-January/19, 2025/2025-01/19.
    re.compile(r"(?<![0-9])([0-9]{4})(/)(?:[0-9]{4}-)?([0-9]{1,2})(?:[-_ .][^/0-9]*)?/([0-9]{1,2})(?![0-9])"),
    re.compile(r"(?<![0-9])([0-9]{4})([-_])([0-9]{2})/([0-9]{1,2})(?![0-9])"),
    re.compile(r"(?<![0-9])([0-9]{4})(/)([0-9]{2})[-_]([0-9]{2})(?![0-9._-])"),
    # 20250118, and the ids of a Zettelkasten: 202501181030, 20250118103000.
    re.compile(r"(?<![0-9])([0-9]{4})()([0-9]{2})([0-9]{2})(?:[0-2][0-9][0-5][0-9](?:[0-5][0-9])?)?(?![0-9])"),
)
_PATH_NAMED = re.compile(r"(?<![0-9])([0-9]{4})/(?:[0-9]{1,2}[-_ .])?([^\W\d_]{3,12})/([0-9]{1,2})(?![0-9])")
_WEEK = r"(?:W|(?:KW|CW|Week)[-_ ]?)(?P<{0}>[0-9]{{1,2}})"
_PATH_WEEK = re.compile(
    rf"(?<![0-9])(?P<year>[0-9]{{4}})[-_ /]?{_WEEK.format('week')}(?:-(?P<day>[1-7]))?(?![0-9])"
    rf"|(?<![A-Za-z0-9]){_WEEK.format('first')}[-_ /](?P<of>[0-9]{{4}})(?![0-9])",
    re.IGNORECASE,
)
_PATH_QUARTER = re.compile(
    r"(?<![A-Za-z0-9])(?:Q(?P<first>[1-4])[-_ /]?(?P<of>20[0-9]{2})|(?P<year>20[0-9]{2})[-_ /]?Q(?P<at>[1-4]))(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_PATH_MONTH = re.compile(r"(?<![0-9])([0-9]{4})[-_/]([0-9]{2})(?![0-9-])")
SHORT_MONTHS: Final = frozenset(
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec", "mai", "maj"]
)
"""Names of months in three letters that no other word has beside a number: set, out and ago are some."""
_PATH_MONTH_FIRST = re.compile(r"(?<![0-9-])(0[1-9]|1[0-2])[-_](20[0-9]{2})(?![0-9-])")
_PATH_MONTH_NAMED = re.compile(
    r"(?<![0-9])(?P<year>20[0-9]{2})[-_ ](?P<name>[^\W\d_]{3,12})(?:[-_ ](?P<day>[0-9]{1,2}))?(?![^\W_])"
    r"|(?<![^\W_])(?:(?P<before>[0-9]{1,2})[-_ ]?)?(?P<led>[^\W\d_]{3,12})[-_ ]?(?P<of>20[0-9]{2})(?![0-9])"
)
_PATH_YEAR = re.compile(r"(?:^|[/_ -])((?:19[7-9]|20[0-9])[0-9])(?=$|[/_ -])")


def days_of_path(path: str) -> DaySpan | None:
    """Return the day, week, month or quarter that a path names, or None. Examples:
    `memory/2026-11-21.md`, `journals/2025_01_15.md`, `log/2025/01/19.md`, `2025/January/19.md`,
    `2025-W07.md`, `2025-02.md`, `2025-Q1.md`.
    """
    stem = with_plain_digits(path.removesuffix(".md"))
    if not re.search(r"[0-9]{4}", stem):
        return None
    for form in _PATH_DAYS:
        for match in form.finditer(stem):
            if span := day_span(int(match[1]), int(match[3]), int(match[4])):
                return span
    for match in _PATH_NAMED.finditer(stem):
        if span := day_span(int(match[1]), month_numbers().get(match[2].casefold(), 0), int(match[3])):
            return span
    name = stem.rpartition("/")[2].replace("_", " ")
    for one in dates_in(name):
        if len(one.spans) == 1 and one.spans[0].is_day:
            return one.spans[0]
    if span := next(filter(None, map(_named_month_of, _PATH_MONTH_NAMED.finditer(name))), None):
        return span
    if span := next(filter(None, map(_week_of_match, _PATH_WEEK.finditer(stem))), None):
        return span
    if (quarter := _PATH_QUARTER.search(stem)) is not None:
        return _quarter_of_match(quarter)
    for match in _PATH_MONTH.finditer(stem):
        if span := month_of(int(match[1]), int(match[2])):
            return span
    for match in _PATH_MONTH_FIRST.finditer(stem):
        if span := month_of(int(match[2]), int(match[1])):
            return span
    named = next((one.spans[0] for one in dates_in(name) if len(one.spans) == 1), None)
    if named is None and "/" in stem:  # 2025/Jan 18.md
        led = _partial(name.casefold(), year_of_path(stem.rpartition("/")[0]))
        return led if led is not None and led.is_day else None
    return named


def _week_of_match(match: re.Match[str]) -> DaySpan | None:
    """Return the week that a path names, or the day of it that stands behind: `2026-W12-3`."""
    span = week_of(int(match["year"] or match["of"]), int(match["week"] or match["first"]))
    if span is None or match["day"] is None:
        return span
    day = span.first + timedelta(int(match["day"]) - 1)
    return DaySpan(day, day)


def _quarter_of_match(match: re.Match[str]) -> DaySpan | None:
    return quarter_of(int(match["year"] or match["of"]), int(match["at"] or match["first"]))


def _named_month_of(match: re.Match[str]) -> DaySpan | None:
    """Return the month or the day that a file is named after: `2026-May`, `2026-May-03`, `May-2026`,
    `03May2026`.
    """
    year, day = int(match["year"] or match["of"]), match["day"] or match["before"]
    name = (match["name"] or match["led"]).casefold()
    number = month_numbers().get(name, 0)
    if not number or not (len(name) > 3 or name in SHORT_MONTHS):
        return None
    return day_span(year, number, int(day)) if day else month_of(year, number)


def year_of_path(path: str) -> DaySpan | None:
    """Return the year that the name of a folder or file states, or None. It completes headings
    without a year.
    """
    found = _PATH_YEAR.findall(with_plain_digits(path.removesuffix(".md")))
    return DaySpan(date(int(found[-1]), 1, 1), date(int(found[-1]), 12, 31)) if found else None


# The front matter --------------------------------------------------------------------------------

_MATTER = re.compile(r"(---|\+\+\+)[ \t]*\n(.*?)^(?:\1|\.\.\.)[ \t]*$", re.DOTALL | re.MULTILINE)
_MATTER_FIELD = re.compile(
    r"^(date|day|updated|(?:date[ _-]?)?created(?:[ _-]?(?:at|on|time))?|creation[ _-]?date|pub(?:lish)?[ _-]?date|"
    r"published(?:[ _-]?(?:at|on))?)[ \t]*(?:::?|=)[ \t]*(?:\n[ \t]*-[ \t]+)?[\"'\[]*([^\n\"'\]]{1,64})",
    re.IGNORECASE | re.MULTILINE,
)
_COMPACT = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})(?:[0-9]{4}|[0-9]{6}|[0-9]{9})?(?![0-9])")
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?(?:Z|[+-]00:?00)")
_FIELDS = ("date", "day", "created", "published")
_NOTE_FIELDS = ("updated", "created")


class StatedDay(NamedTuple):
    """The days that a document states it is about.

    `moment`: the time in seconds since 1970 if a program stated a time in UTC, so that the day
    depends on the reader's time zone; else None.
    """

    span: DaySpan
    moment: float | None = None

    @property
    def in_local_time(self) -> DaySpan:
        """The days in this computer's time zone."""
        if self.moment is None:
            return self.span
        day = datetime.fromtimestamp(self.moment).astimezone().date()
        return DaySpan(day, day)


def day_of_matter(text: str, fields: Sequence[str] = _FIELDS) -> StatedDay | None:
    """Return the day that the front matter (YAML, TOML or Logseq's properties) states in the first
    of `fields` that it has, or None.

    A time with an offset belongs to the day that its author wrote. For a time in UTC, the day
    depends on the reader's time zone.
    """
    head = text[:_MATTER_CHARS].removeprefix("\ufeff").replace("\r\n", "\n")
    matter = _MATTER.match(head)
    if matter is not None:
        lines = matter[2]
    else:
        properties = re.match(r"(?:[\w-]+:: [^\n]*\n)+", head + "\n")
        if properties is None:
            return None
        lines = properties[0]
    stated = {_field_name(name): value.strip() for name, value in reversed(_MATTER_FIELD.findall(lines))}
    for name in fields:
        if found := _parse_moment(stated.get(name, "")):
            return found
    return None


def _field_name(name: str) -> str:
    """Return the one name of a field that programs spell in many ways: `created_at`, `pubDate`."""
    name = name.lower()
    return "created" if "creat" in name else "published" if name.startswith("pub") else name


def _parse_moment(value: str) -> StatedDay | None:
    if match := _MOMENT.match(value):
        try:
            moment = datetime.fromisoformat(match[0]).timestamp()
        except ValueError:
            return None
        span = day_span(int(value[:4]), int(value[5:7]), int(value[8:10]))
        # Midnight in UTC is how many programs store a day without a time.
        return StatedDay(span, moment if moment % 86_400 else None) if span else None
    if match := _COMPACT.match(value):
        span = day_span(int(match[1]), int(match[2]), int(match[3]))
        return StatedDay(span) if span else None
    dates = dates_in(re.sub(r"(?<=[0-9])[T ][0-9]{2}:.*", "", value))
    return StatedDay(dates[0].spans[0]) if len(dates) == 1 and len(dates[0].spans) == 1 else None


def stated_day(path: str, text: str) -> StatedDay | None:
    """Return the days that a document states, or None.

    They are the day in its path, else the day in its front matter, else the week or month in its
    path. For a note, the day on which it was changed according to its fields comes first.
    """
    if is_note(path) and (changed := day_of_matter(text, _NOTE_FIELDS)):
        return changed
    span = days_of_path(path)
    if span is not None and span.is_day:
        return StatedDay(span)
    return day_of_matter(text) or (StatedDay(span) if span else None)


# Headings and entries ----------------------------------------------------------------------------

# Before a date, these make it a date to come, not the day of the text.
_AHEAD = re.compile(
    r"(?:\b(?:due|until|till|by|before|after|deadline|for|expires?|since|from|bis|fällig|für|vor|ab|seit|frist|"
    r"hasta|para|antes|vence|desde|jusqu'au|pour|avant|échéance|entro|scadenza|prima|até|prazo|срок|до|к)\W*)\Z",
    re.IGNORECASE,
)
_TITLE_MARKS = " \t[]()*_~`#:.,،-–—|<>"


def days_of_headings(heading: str, around: DaySpan | None) -> DaySpan | None:
    """Return the days that the headings above a chunk state, or None.

    Args:
        heading: the titles of the headings, as "Outer > Inner".
        around: the days of the document, which complete titles such as "Nov 24"; None if unknown.
    """
    found: DaySpan | None = None
    for title in heading.split(" > "):
        stated = _day_of_title(title, found or around)
        if stated is None:
            continue
        # A month above a day does not widen it.
        wider = around if found is None else found
        if wider is None or not (wider.is_day and wider.within(stated)):
            found = stated
    return found


def _day_of_title(title: str, around: DaySpan | None) -> DaySpan | None:
    title = with_plain_digits(title)[:160]
    dates = [one for one in dates_in(title) if len(one.spans) == 1]
    if dates:
        first = dates[0]
        if len({one.spans for one in dates}) > 1 or _AHEAD.search(title[: first.start].rstrip()):
            return None
        return first.spans[0]
    if match := re.search(r"(?<![0-9])([0-9]{8})(?![0-9])", title):
        span = days_of_path(match[0])
        return span if span and span.is_day and title.strip(_TITLE_MARKS).startswith(match[0]) else None
    if match := _PATH_WEEK.search(title):
        return _week_of_match(match)
    if match := _PATH_QUARTER.search(title):
        return _quarter_of_match(match)
    if (match := _SHORT.fullmatch(title.strip())) and around and around.first.year == around.last.year:
        return day_span(around.first.year, int(match[2]), int(match[1]))
    return _partial(title.strip(_TITLE_MARKS).casefold(), around)


# "24.11." and "Di, 24.11."; "24.11" may be the number of a section.
_SHORT = re.compile(r"(?:[^\W\d_]{2,12}[.,]?\s+)?([0-9]{1,2})\.\s?([0-9]{1,2})\.")
_PARTS = re.compile(r"[^\s,،.:()\[\]/–—-]+(?:-feira)?")


def _partial(title: str, around: DaySpan | None) -> DaySpan | None:
    """Return the days of a title without a year: "Nov 24", "Fri 24", "24.", "November", "Monday",
    "2026".
    """
    if re.fullmatch(r"(?:19[7-9]|20[0-9])[0-9]", title):
        return DaySpan(date(int(title), 1, 1), date(int(title), 12, 31))
    if around is None:
        return None
    year, has_month = around.first.year, around.is_day or (around.first.month == around.last.month)
    is_year_known = around.first.year == around.last.year
    if match := re.match(r"([0-9]{1,2})\s?[月월]\s?([0-9]{1,2})\s?[日号號일]", title):
        return day_span(year, int(match[1]), int(match[2])) if is_year_known else None
    words = _PARTS.findall(title)[:4]
    weekday = next((weekday_numbers()[word] for word in words[:1] if word in weekday_numbers()), None)
    rest = words[1:] if weekday is not None else words
    if weekday is not None and not rest and around.last - around.first == timedelta(6):
        day = around.first + timedelta((weekday - around.first.weekday()) % 7)
        return DaySpan(day, day)
    numbers = [
        int(match[1]) for word in rest[:3] if (match := re.fullmatch(r"([0-9]{1,2})(?:st|nd|rd|th|er|º|ª)?", word))
    ]
    months = [month_numbers()[word] for word in rest[:3] if word in month_numbers()]
    if is_year_known and len(months) == 1:
        if len(numbers) == 1 and _is_led(rest):
            return day_span(year, months[0], numbers[0])
        return month_of(year, months[0]) if len(rest) == 1 else None
    if has_month and len(numbers) == 1 and len(rest) == 1:
        return day_span(year, around.first.month, numbers[0])
    return None


def _is_led(words: Sequence[str]) -> bool:
    """Return True if a title begins with a day and a month, in either order."""
    first = [word for word in words if word not in ("of", "de", "di", "do")][:2]
    return len(first) == 2 and all(word[0].isdigit() or word in month_numbers() for word in first)


_ENTRY = re.compile(r"[ \t]*(?:[-*+•|>][ \t]+|[0-9]{1,3}[.)][ \t]+)*(?:\[[ xX]\][ \t]+)?[\[(*_`|]{0,4}[ \t]*")


def days_of_entries(text: str) -> DaySpan | None:
    """Return the span of the dates with which lines of a chunk begin, as in a log: `- 2026-11-24:
    …`, `[24.11.2026] …`. None if no line begins with a date, or the dates are more than a month
    apart.
    """
    if not _may_have_dates(text):
        return None
    found: list[DaySpan] = []
    for line in text.split("\n")[: 4 * MOST_DATES]:
        start = _ENTRY.match(line)
        begin = start.end() if start else 0
        head = line[begin : begin + _REACH]
        dates = dates_in(head, most=1)
        if dates and len(dates[0].spans) == 1 and dates[0].spans[0].is_day and _leads(head[: dates[0].start]):
            found.append(dates[0].spans[0])
    if not found:
        return None
    span = DaySpan(min(one.first for one in found), max(one.last for one in found))
    return span if (span.last - span.first).days <= _WIDEST_ENTRY_DAYS else None


def _leads(before: str) -> bool:
    """Return True if what stands before a date is nothing, or a weekday."""
    word = before.strip(_TITLE_MARKS).casefold()
    return not word or word in weekday_numbers()


def days_of_chunk(heading: str, text: str, around: DaySpan | None) -> DaySpan | None:
    """Return the days that a chunk states at the beginning of its lines, or else in its headings.
    None if it states none, so that the days of its document apply.
    """
    return days_of_entries(text) or (days_of_headings(heading, around) if heading else None)
