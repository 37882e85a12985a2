"""Patterns for days in questions that are given in relation to others: parts of months and years,
ranges of days, weeks and quarters with their year, and days of a week or month.

Each pattern has a function that interprets it. These patterns are tried before dates with a year,
which would otherwise read the last words as a whole month or year: "mid-May 2026", "3-9 May 2026".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import date, timedelta
from functools import cache
from typing import Final, NamedTuple

from confide_memory.tools.day_names import SEASONS
from confide_memory.tools.written_days import (
    SHORT_MONTHS,
    VERSION,
    day_span,
    month_numbers,
    month_of,
    quarter_of,
    week_of,
    weekday_numbers,
)

Reading = Callable[[re.Match[str], date], tuple[date, date] | tuple[date, date, date] | None]
"""The function that interprets a match: it returns the first and the last day, and perhaps another day
that the words can mean.
"""
Form = tuple[re.Pattern[str], Reading]

_NEAR_YEARS: Final = 10
"""A year of two digits is one of so many before this one, or the next."""
_PARTS: Final = (
    "early|beginning of|start of|anfang|début|debut|principios de|inizio",
    "mid|middle of|mitte|mi|mediados de|metà",
    "late|end of|ende|fin|fin de|finales de|fine",
)
_THIRDS: Final = ((1, 10), (11, 20), (21, 31))
"""Days of a month that its beginning, its middle and its end are."""
_ORDINALS: Final = (
    "first|1st|ersten|erstes|erste|1.",
    "second|2nd|zweiten|zweites|zweite|2.",
    "third|3rd|dritten|drittes|dritte|3.",
    "fourth|4th|last|vierten|viertes|vierte|letzten|letztes|letzte|4.",
)
_TO: Final = r"\s*(?:-|–|—|to|until|till|through|bis|al|au|a|hasta|até)\s*"
_TH: Final = r"(?:st|nd|rd|th|[.º]|er)?"
_DAY: Final = r"(?P<day>[0-3]?[0-9])"
_YEAR: Final = r"(?P<year>20[0-9]{2})"
_IN_YEAR: Final = rf"(?:,?\s+(?:of\s+|de\s+|del\s+)?{_YEAR}(?![0-9]))?"
_IN: Final = r"(?:in|during|of|for|since|from|im|seit)\s+(?:the\s+)?"
_ON: Final = r"(?:am|vom|seit|ab|bis|zum|on|since|from|until|dated|du|le|del|el|il|dal)\s+"
_ENDS: Final = r"(?=\s*(?:[?!,;:)]|\Z)|\s+(?:and|or|we|i|you|he|she|they|at|with|about|did|was|were)\b)"
"""Words behind a day without a month; others are counted too: "the 3rd floor"."""
_AFTER_SEASON: Final = r"derni[eè]re?|pasad[oa]|passad[oa]|scors[oa]|الماضي|last\s+year"
_BEFORE_SEASON: Final = (
    r"last|(?:this\s+)?past|previous|letzte[nrsm]?|vergangene[nrsm]?|vorige[nrsm]?|afgelopen|scors[oa]|förra|sidste|forrige|geçen|"
    r"прошл(?:ым|ой|ую|ого|ое)|минул(?:ого|ої|ого)|zeszłe(?:go|j)"
)
_IN_SEASON: Final = (
    r"(?:in|during|over|since|of|until|before|after|im|seit|nel|nella|in|no|na|en|au|à|depuis|desde)\s+"
    r"(?:the\s+|el\s+|la\s+|l['’]|le\s+)?|nell['’]|dell['’]|dans\s+l['’]|diese[nrsm]?\s+|this\s+"
)
_NO_SEASON: Final = r"(?!(?<=spring)|(?<=fall))"
"""Behind a name that other things have too: Spring Boot, to fall back."""
_IN_THE: Final = re.compile(r"\b(?:in|the|of|during|since)\s+\Z", re.IGNORECASE)
_LED: Final = "(?:(?<=before )|(?<=after )|(?<=until )|(?<=till ))"
"""Before a month or year without another word: `days` reads what these mean."""


def form(pattern: str, read: Reading) -> Form:
    """Return a pattern that matches only separate words, not parts of a path, a number or a name,
    together with the function that interprets it.
    """
    return re.compile(rf"(?<![\w/.-])(?:{pattern})(?![\w/-]|\.\w)", re.IGNORECASE), read


PART_OF_DAY: Final = (
    r"(?:morning|afternoon|evening|night|noon|früh|vormittag|mittag|nachmittag|abend|nacht|matin|après-midi|soir|"
    r"por\s+la\s+(?:mañana|tarde|noche)|mattina|pomeriggio|sera|à\s+tarde|à\s+noite|ochtend|middag|avond)\b"
)
"""Words that may stand behind a day: "yesterday evening"."""


@cache
def _seasons() -> dict[str, int]:
    """Return the names of the seasons, each with the number of its first month."""
    return {name: 3 * number for number, names in enumerate(SEASONS, 1) for name in names.split()}


class _Names(NamedTuple):
    """Expressions for names, each with a group of its own name."""

    month: str
    weekday: str
    part: str
    number: str
    season: str


@cache
def leading() -> tuple[Form, ...]:
    """Return the patterns that must be tried before dates with a year. They are built at the first
    call.
    """
    named = alternatives({*(name for name in month_numbers() if len(name) > 3), *SHORT_MONTHS})
    names = _Names(
        # "May" is a verb too: "the early may be".
        month=rf"(?P<month>{named})(?!\s+(?:be|not|have|also|still|need|help|want|use|cause|fail|i|we|you)\b)",
        weekday=rf"(?P<weekday>{alternatives(name for name in weekday_numbers() if len(name) > 3)})",
        part=rf"(?P<part>{alternatives(word for words in _PARTS for word in words.split('|'))})",
        number=rf"(?P<number>{alternatives(word for words in _ORDINALS for word in words.split('|'))})",
        season=rf"(?P<season>{alternatives(_seasons())})",
    )
    return (*_parts_of_years(names), *_weeks(names), *_whole_spans(names), *_other_days(names))


def _parts_of_years(names: _Names) -> tuple[Form, ...]:
    """Return the forms of days of a month, and of parts of a month or year."""
    days = rf"(?P<from>[0-9]{{1,2}}){_TH}{_TO}(?P<to>[0-9]{{1,2}}){_TH}"
    return (
        form(rf"{names.part}[\s-]+(?:de\s+|di\s+)?{names.month}{_IN_YEAR}(?!\s+[0-9])", _part_of_month),
        form(rf"{names.part}[\s-]+(?:de\s+|di\s+)?{_YEAR}(?![\s,.:]*[0-9])", _part_of_year),
        form(
            rf"(?:between\s+|zwischen\s+|from\s+|von\s+)?{days}\s+(?:of\s+|de\s+|di\s+)?{names.month}{_IN_YEAR}",
            _days_of_month,
        ),
        form(
            rf"(?:between|zwischen|entre)\s+(?P<from>[0-9]{{1,2}}){_TH}\s+(?:and|und|y|et|e)\s+(?P<to>[0-9]{{1,2}}){_TH}"
            rf"\s+(?:of\s+|de\s+|di\s+)?{names.month}{_IN_YEAR}",
            _days_of_month,
        ),
        form(rf"{names.month}\.?\s+{days}{_IN_YEAR}", _days_of_month),
        form(rf"H(?P<number>[12])[\s/-]*{_YEAR}|(?P<of>20[0-9]{{2}})[\s/-]*H(?P<at>[12])", _half),
        form(rf"{names.number}\s+(?:half(?:\s+of)?|halbjahr|hälfte)\s+{_YEAR}", _half),
        form(rf"Q(?P<number>[1-4])[\s/,-]*{_YEAR}", _quarter),
        form(rf"{names.number}\s+(?:quarter|quartal)(?:,?\s+(?:of\s+)?{_YEAR})", _quarter),
        form(rf"{_IN}(?!last|letzt){names.number}\s+(?:quarter|quartal)", _quarter),
        form(r"this\s+quarter|diese[sm]\s+quartal", _this_quarter),
    )


def _weeks(names: _Names) -> tuple[Form, ...]:
    """Return the forms of weeks, their days, and dates with a short year."""
    return (
        form(rf"{_YEAR}-?W(?P<number>[0-9]{{2}})-(?P<at>[1-7])", _week),
        form(rf"(?:W|KW|CW|wk|week)\s*(?P<number>[0-9]{{1,2}})(?:[\s/,-]+(?:of\s+)?){_YEAR}", _week),
        form(rf"(?P<number>[0-9]{{1,2}})\.\s*(?:KW|Kalenderwoche)(?:[\s/,-]+{_YEAR})?", _week),
        form(r"wk\.?\s*(?P<number>[0-9]{1,2})", _week),
        form(
            rf"{names.weekday}\s+(?:of\s+last\s+week|last\s+week|(?:der\s+)?letzte[rn]?\s+woche)", _weekday_of_last_week
        ),
        form(rf"(?:last\s+week(?:'s|’s)?(?:\s+on)?|letzte\s+woche(?:\s+am)?)\s+{names.weekday}", _weekday_of_last_week),
        form(rf"(?:this|diesen)\s+{names.weekday}", _weekday_of_this_week),
        form(rf"(?:seit|depuis|desde|sinds)\s+(?:letzte[mn]\s+|dem\s+|le\s+|el\s+)?{names.weekday}", _since_weekday),
        form(rf"(?:last|past|previous|letzten|vergangenen|vorigen)\s+{names.month}(?!,?\s+[0-9])", _last_month),
        form(rf"{_ON}{_DAY}\.(?P<m>[0-9]{{1,2}})\.(?P<year>[0-9]{{2}})", _short_date),
        form(r"(?P<day>[0-3][0-9])\.(?P<m>[01][0-9])\.(?P<year>[0-9]{2})", _short_date),
        form(r"(?P<day>[0-9]{1,2})/(?P<m>[0-9]{1,2})/(?P<year>[0-9]{2})", _short_date),
    )


def _whole_spans(names: _Names) -> tuple[Form, ...]:
    """Return the forms of months, years and seasons."""
    return (
        form(rf"{_LED}{names.month}(?!\.?,?\s+[0-9])", _whole_month),
        form(rf"(?:{_LED}|(?<=since )){_YEAR}{_ENDS}", _whole_year),
        form(
            rf"(?:(?:in|during|since|of)\s+(?:the\s+)?|im\s+)?{names.season}\s+(?:of\s+|de\s+|del\s+|di\s+)?{_YEAR}(?:/[0-9]{{2,4}})?"
            rf"(?![0-9.-])",
            _season,
        ),
        form(rf"(?:{_BEFORE_SEASON})\s+{names.season}(?!\s+[0-9])", _season),
        form(rf"(?:l['’]|l[ae]\s+|el\s+)?{names.season}\s+(?P<ago>{_AFTER_SEASON})", _season),
        form(rf"(?:{_IN_SEASON}){names.season}(?:{_NO_SEASON}|{_ENDS})", _season),
        (
            re.compile(rf"(?P<year_word>去年|昨年|今年|작년|지난해|올해|지난)\s?[の的]?\s?{names.season}"),
            _season,
        ),
    )


def _other_days(names: _Names) -> tuple[Form, ...]:
    """Return the forms of weekdays that are near, of days without a year, and of vague spans."""
    short_weekday = r"(?P<weekday>mon|tues?|wed|thu(?:rs?)?|fri|sat|sun)"
    return (
        form(rf"(?:on|last)\s+{short_weekday}\.?{_ENDS}", _last_weekday),
        form(rf"next\s+{names.weekday}", _next_weekday),
        form(
            rf"(?:on\s+)?{names.weekday}\s+next\s+week|next\s+week\s+(?:on\s+)?{names.weekday.replace('weekday', 'on')}",
            _weekday_of_next_week,
        ),
        form(rf"{names.weekday}\s+{PART_OF_DAY}", _last_weekday),
        form(r"since\s+(?:the|last)\s+weekend", _since_weekend),
        form(rf"(?:{_ON}){_DAY}/(?P<m>[0-3]?[0-9]){_ENDS}", _day_and_month),
        form(
            rf"(?:in\s+)?(?:the\s+)?{names.number}\s+(?:week|woche)\s+(?:(?:of|in|im)\s+)?{names.month}{_IN_YEAR}",
            _week_of_month,
        ),
        form(rf"{names.month}\s+the\s+{_DAY}(?:st|nd|rd|th){_IN_YEAR}", _day_of_month),
        form(rf"{_YEAR}(?P<m>0[1-9]|1[0-2])(?P<day>[0-2][0-9]|3[01])", _compact),
        form(rf"(?P<m>0?[1-9]|1[0-2])/{_YEAR}|(?P<of>20[0-9]{{2}})[-/](?P<at>0[1-9]|1[0-2])", _numbered_month),
        form(
            rf"(?:on|since|by|from|until|till)\s+the\s+{_DAY}(?:st|nd|rd|th)(?:\s+of\s+(?:this|last)\s+month|{_ENDS})",
            _day_of_this_month,
        ),
        form(rf"(?:am|vom|seit|zum)\s+{_DAY}\.{_ENDS}", _day_of_this_month),
        form(r"(?:a|the\s+last|the\s+past)\s+few\s+(?P<unit>day|week)s(?P<ago>\s+ago)?", _few),
        form(r"vor\s+(?:ein\s+paar|einigen|wenigen)\s+(?P<unit>tag|woch)en", _few),
        form(r"(?:(?:in|over|during)\s+)?(?:the\s+)?past\s+(?P<unit>week|month|year)", _up_to_today),
    )


def alternatives(words: Iterable[str]) -> str:
    """Return an expression that matches any of the words, the longest first."""
    return "|".join(re.escape(word).replace(r"\ ", r"\s+") for word in sorted(words, key=len, reverse=True))


def _month(match: re.Match[str], today: date) -> tuple[int, int]:
    """Return the year and number of the month that a form names; without a year, of the last such
    month that has begun.
    """
    number = month_numbers()[" ".join(match["month"].casefold().split())]
    return int(match["year"] or today.year - (number > today.month)), number


def _rank(said: str, words: tuple[str, ...]) -> int:
    """Return the place of the group of words that holds this one, from 0."""
    word = " ".join(said.casefold().split())
    return next(at for at, group in enumerate(words) if word in group.split("|"))


def _number(match: re.Match[str]) -> int:
    """Return the number that a form states in digits or as a word."""
    said = match["number"] or match["at"]
    return int(said) if said.isdigit() else _rank(said, _ORDINALS) + 1


def _year(match: re.Match[str]) -> int | None:
    """Return the year that a form states, or None."""
    said = match.groupdict()
    found = said.get("year") or said.get("of")
    return int(found) if found else None


def _whole_month(match: re.Match[str], today: date) -> tuple[date, date] | None:
    number = month_numbers()[" ".join(match["month"].casefold().split())]
    span = month_of(today.year - (number > today.month), number)
    return None if span is None else (span.first, span.last)


def _whole_year(match: re.Match[str], today: date) -> tuple[date, date] | None:
    year = int(match["year"])
    return (date(year, 1, 1), date(year, 12, 31)) if year <= today.year else None


def _part_of_month(match: re.Match[str], today: date) -> tuple[date, date] | None:
    year, number = _month(match, today)
    first, last = _THIRDS[_rank(match["part"], _PARTS)]
    whole = month_of(year, number)
    start = date(year, number, first)
    return None if whole is None or start > today else (start, min(whole.last, start + timedelta(last - first)))


def _part_of_year(match: re.Match[str], today: date) -> tuple[date, date] | None:
    start = date(int(match["year"]), 4 * _rank(match["part"], _PARTS) + 1, 1)
    end = month_of(start.year, start.month + 3)
    return None if end is None or start > today else (start, end.last)


def _days_of_month(match: re.Match[str], today: date) -> tuple[date, date] | None:
    year, number = _month(match, today)
    first, last = day_span(year, number, int(match["from"])), day_span(year, number, int(match["to"]))
    return (first.first, last.first) if first and last and first < last else None


def _half(match: re.Match[str], _today: date) -> tuple[date, date] | None:
    number, year = _number(match), _year(match)
    end = month_of(year, 6 * number) if year and number < 3 else None
    return None if end is None else (date(end.first.year, 6 * number - 5, 1), end.last)


def _quarter(match: re.Match[str], today: date) -> tuple[date, date] | None:
    """Return the quarter of that number, in the given year, else the last that has begun."""
    number = _number(match)
    year = _year(match) or today.year - (date(today.year, 3 * number - 2, 1) > today)
    return quarter_of(year, number)


def _this_quarter(_match: re.Match[str], today: date) -> tuple[date, date]:
    return date(today.year, 3 * ((today.month - 1) // 3) + 1, 1), today


def _week(match: re.Match[str], today: date) -> tuple[date, date] | None:
    """Return the week of that number, in the given year, else the last that has begun; the day of it
    that the form numbers.
    """
    number, year = int(match["number"]), _year(match)
    span = week_of(year or today.isocalendar().year, number)
    if span is not None and span.first > today and year is None:
        span = week_of(today.isocalendar().year - 1, number)
    if span is None:
        return None
    if at := match.groupdict().get("at"):
        day = span.first + timedelta(int(at) - 1)
        return day, day
    return span.first, span.last


def _weekday_of_last_week(match: re.Match[str], today: date) -> tuple[date, date]:
    day = today - timedelta(today.weekday() + 7 - weekday_numbers()[match["weekday"].casefold()])
    return day, day


def _weekday_of_this_week(match: re.Match[str], today: date) -> tuple[date, date] | None:
    """Return that day of this week, unless it is still to come."""
    day = today - timedelta(today.weekday() - weekday_numbers()[match["weekday"].casefold()])
    return (day, day) if day <= today else None


def _since_weekday(match: re.Match[str], today: date) -> tuple[date, date]:
    back = (today.weekday() - weekday_numbers()[match["weekday"].casefold()]) % 7 or 7
    return today - timedelta(back), today


def _last_month(match: re.Match[str], today: date) -> tuple[date, date] | None:
    """Return the last such month that is over."""
    number = month_numbers()[" ".join(match["month"].casefold().split())]
    span = month_of(today.year - (number >= today.month), number)
    return None if span is None else (span.first, span.last)


def _season(match: re.Match[str], today: date) -> tuple[date, date] | None:
    """Return a season of the given year; else the last that is over, or that has begun where no
    word says that it is over. A winter is of the year in which it begins.
    """
    said = match.groupdict()
    month, word = _seasons()[match["season"].casefold()], said.get("year_word")
    if (
        said.get("ago")
        and match[0].casefold().startswith("fall ")
        and not _IN_THE.search(match.string, 0, match.start())
    ):
        return None  # "did sales fall last year?"
    if named := said.get("year"):
        return _months_from(int(named), month)
    if (word and word != "지난") or "year" in (said.get("ago") or ""):
        return _months_from(today.year - (word not in ("今年", "올해")), month)
    # With a word such as "last" it is over: this form alone has neither "in" nor a year.
    is_over = re.match(_BEFORE_SEASON, match[0], re.IGNORECASE) or said.get("ago") or word
    for year in (today.year, today.year - 1, today.year - 2):
        first, last = _months_from(year, month)
        if (last if is_over else first) < today or (not is_over and first == today):
            return first, last
    return None


def _months_from(year: int, month: int) -> tuple[date, date]:
    """Return three months, the first of them in this year."""
    end = month_of(year + (month + 2) // 13, (month + 1) % 12 + 1)
    assert end is not None
    return date(year, month, 1), end.last


def _last_weekday(match: re.Match[str], today: date) -> tuple[date, date]:
    back = (today.weekday() - weekday_numbers()[_whole_weekday(match["weekday"])]) % 7 or 7
    return today - timedelta(back), today - timedelta(back)


def _whole_weekday(said: str) -> str:
    """Return a weekday as the table has it, which knows one short form of each."""
    return said.casefold() if len(said) > len("thurs") else said[:3].casefold()


def _next_weekday(match: re.Match[str], today: date) -> tuple[date, date, date]:
    """Return the next such day, and the one after it, which some people mean."""
    day = today + timedelta((weekday_numbers()[match["weekday"].casefold()] - today.weekday()) % 7 or 7)
    return day, day, day + timedelta(7)


def _weekday_of_next_week(match: re.Match[str], today: date) -> tuple[date, date]:
    said = match["weekday"] or match["on"]
    day = today + timedelta(7 - today.weekday() + weekday_numbers()[said.casefold()])
    return day, day


def _since_weekend(_match: re.Match[str], today: date) -> tuple[date, date]:
    return today - timedelta((today.weekday() - 5) % 7 or 7), today


def _day_of_month(match: re.Match[str], today: date) -> tuple[date, date] | None:
    year, number = _month(match, today)
    span = day_span(year, number, int(match["day"]))
    return (span.first, span.last) if span else None


def _week_of_month(match: re.Match[str], today: date) -> tuple[date, date] | None:
    """Return seven days of a month: the first ones, those behind them, or the last ones."""
    whole = month_of(*_month(match, today))
    if whole is None or whole.first > today:
        return None
    first = whole.first + timedelta(7 * _rank(match["number"], _ORDINALS))
    if match["number"].casefold() in ("last", "letzten", "letztes", "letzte"):
        first = whole.last - timedelta(6)
    return first, first + timedelta(6)


def _day_and_month(match: re.Match[str], today: date) -> tuple[date, date] | tuple[date, date, date] | None:
    """Return the last day of these two numbers that has come, in either order."""
    one, other = int(match["day"]), int(match["m"])
    if (one, other) == (24, 7):
        return None
    found = [
        next(
            (span for year in (today.year, today.year - 1) if (span := day_span(year, *pair)) and span.first <= today),
            None,
        )
        for pair in ((other, one), (one, other))
    ]
    return _either(span.first for span in found if span)


def _either(days: Iterable[date]) -> tuple[date, date] | tuple[date, date, date] | None:
    """Return the one or two days that words can mean, as a form's result."""
    found = list(dict.fromkeys(days))
    if not found:
        return None
    return (found[0], found[0], found[1]) if len(found) > 1 else (found[0], found[0])


def _short_date(match: re.Match[str], today: date) -> tuple[date, date] | tuple[date, date, date] | None:
    """Return the day of numbers with a year of two digits: with points the day is first everywhere,
    and with slashes either may be.
    """
    year, day, month = 2000 + int(match["year"]), int(match["day"]), int(match["m"])
    if not today.year - _NEAR_YEARS < year <= today.year + 1 or VERSION.search(match.string, 0, match.start()):
        return None
    spans = [day_span(year, month, day), day_span(year, day, month) if "/" in match[0] else None]
    return _either(span.first for span in spans if span)


def _compact(match: re.Match[str], today: date) -> tuple[date, date] | None:
    span = day_span(int(match["year"]), int(match["m"]), int(match["day"]))
    return None if span is None or span.first.year > today.year + 1 else (span.first, span.last)


def _numbered_month(match: re.Match[str], today: date) -> tuple[date, date] | None:
    span = month_of(_year(match) or 0, int(match["m"] or match["at"]))
    return None if span is None or span.first > today else (span.first, span.last)


def _day_of_this_month(match: re.Match[str], today: date) -> tuple[date, date] | None:
    """Return the last day of that number that has come: of this month or an earlier one."""
    for back in (0, 1, 2):
        month = today.year * 12 + today.month - 1 - back - match[0].casefold().endswith("last month")
        span = day_span(month // 12, month % 12 + 1, int(match["day"]))
        if span is not None and span.first <= today:
            return span.first, span.last
    return None


def _few(match: re.Match[str], today: date) -> tuple[date, date]:
    days = 7 if match["unit"].casefold().startswith("w") else 1
    is_ago = "ago" not in match.groupdict() or match["ago"]
    return today - timedelta(6 * days), today - timedelta(2 * days if is_ago else 0)


def _up_to_today(match: re.Match[str], today: date) -> tuple[date, date]:
    return today - timedelta({"week": 7, "month": 30, "year": 365}[match["unit"].casefold()]), today
