"""The days that texts state: in their lines, paths, front matter, headings and entries."""

from __future__ import annotations

import time
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confide_memory.tools.written_days import (
    DaySpan,
    day_of_matter,
    days_of_entries,
    days_of_headings,
    days_of_path,
    other_forms,
    stated_day,
)

_THIRD = "2026 03 03"


@pytest.mark.parametrize(
    "text",
    [
        "due on 3 March 2026",
        "March 3, 2026",
        "Mar 3rd, 2026",
        "the 3rd of March 2026",
        "3-Mar-2026",
        "2026 March 3",
        "am 3. März 2026",
        "am 3. maerz 2026",
        "3 de marzo de 2026",
        "le 3 mars 2026",
        "3 marzo 2026",
        "3 de março de 2026",
        "3 maart 2026",
        "3 марта 2026 г.",
        "3 березня 2026",
        "3 marca 2026",
        "3 Mart 2026",
        "3 Maret 2026",
        "2026年3月3日",
        "２０２６年３月３日",
        "2026년 3월 3일",
        "2026. 3. 3.",
        "3 मार्च 2026",
        "३ मार्च २०२६",
        "৩ মার্চ ২০২৬",
        "3 مارس 2026",
        "٣ مارس ٢٠٢٦",
        "3 آذار 2026",
        "3 مارچ 2026",
        "3.3.2026",
        "03.03.2026",
        "3. 3. 2026",
        "3/3/2026",
        "2026-3-3",
    ],
)
def test_a_date_is_known_in_every_form(text: str) -> None:
    """The index has one form of it, beside the text's own."""
    assert other_forms(f"- the invoice, {text}, Ann") == [_THIRD]


@pytest.mark.parametrize(
    ("text", "forms"),
    [
        ("3/4/2026", ["2026 04 03", "2026 03 04"]),
        ("13/4/2026", ["2026 04 13"]),
        ("4/13/2026", ["2026 04 13"]),
        ("3.4.2026", ["2026 04 03"]),
        ("13/4/26", ["2026 04 13"]),
        ("on 3/4/26", ["2026 04 03", "2026 03 04"]),
        ("am 24.11.26.", ["2026 11 24"]),
        ("24.11.26 until 12/24/2026", ["2026 11 24", "2026 12 24"]),
        ("October 2026", ["2026 10"]),
        ("octubre de 2026", ["2026 10"]),
        ("2026年10月", ["2026 10"]),
        ("15 كانون الثاني 2026", ["2026 01 15"]),
        ("12.11.2026–15.11.2026", ["2026 11 12", "2026 11 15"]),
        ("2026-03-03T10:00:00Z", []),  # is in the index as it stands
    ],
)
def test_dates_of_other_kinds(text: str, forms: list[str]) -> None:
    """As both where it may be two days, and months."""
    assert other_forms(text) == forms


@pytest.mark.parametrize(
    "text",
    [
        "2026-02-30",
        "30.2.2026",
        "31 avril 2026",
        "13/45/2026",
        "v1.2.2026",
        "version 1.2.2026",
        "3.5.26",
        "release 24.11.26",
        "Ubuntu 24.04.26",
        "24.11.26.1",
        "24.11.26-rc1",
        "libfoo-10.11.26",
        "10/11/26/b",
        "1/2/45",
        "24.13.26",
        "10.12.2026.1",
        "192.168.20.26",
        "+49 30 2026 3333",
        "ticket-2026-03-03-x",
        "memory/2026/5/3.md",
        "in 2026",
        "order 4/2026",
        "3 marsupials 2026",
        "31 December 1969",
        "1 January 2100",
        "5000 March 2026 x"[:4],
    ],
)
def test_numbers_that_are_dates_of_no_calendar(text: str) -> None:
    """Versions, addresses, numbers of telephones and tickets, days that do not exist."""
    assert other_forms(text) == []


@pytest.mark.parametrize(
    ("path", "days"),
    [
        ("memory/2026-11-21.md", "2026-11-21"),
        ("journals/2025_01_15.md", "2025-01-15"),
        ("20250118.md", "2025-01-18"),
        ("zettel/202501181030 Idea.md", "2025-01-18"),
        ("2025-01-18 Meeting.md", "2025-01-18"),
        ("Daily/2025-03-03.md", "2025-03-03"),
        ("2025/01/19.md", "2025-01-19"),
        ("log/2025/01/19.md", "2025-01-19"),
        ("2025/01-January/19-Sunday.md", "2025-01-19"),
        ("2025/01/2025-01-19.md", "2025-01-19"),
        ("Jan 15th, 2025.md", "2025-01-15"),
        ("24.11.2026.md", "2026-11-24"),
        ("daily/2025/January/18.md", "2025-01-18"),
        ("daily/2025/01-Jan/18.md", "2025-01-18"),
        ("journals/2025/01-18.md", "2025-01-18"),
        ("2025/Jan 18.md", "2025-01-18"),
        ("journals/2025___01___18.md", "2025-01-18"),
        ("releases/2025/1.2.md", None),
        ("2025/3 wishes.md", None),
        ("2025-W07.md", "2025-02-10 2025-02-16"),
        ("2025-02.md", "2025-02-01 2025-02-28"),
        ("log/2025/02.md", "2025-02-01 2025-02-28"),
        *(
            (f"log/{name}.md", "2026-03-16 2026-03-22")
            for name in ("KW12 2026", "KW 12-2026", "W12 2026", "Week 12 2026", "2026-KW12")
        ),
        ("2026-W12-3.md", "2026-03-18"),
        *((f"{name}.md", "2026-04-01 2026-06-30") for name in ("2026Q2", "2026-Q2 review", "Q2 2026", "plans/Q2-2026")),
        *(
            (f"{name}.md", "2026-05-01 2026-05-31")
            for name in ("2026-May", "2026 May", "May-2026", "log/05-2026", "Mai_2026")
        ),
        *((f"{name}.md", "2026-05-03") for name in ("2026-May-03", "03May2026", "3_May_2026")),
        ("notes 2026 out of office.md", None),
        ("03-04-2026.md", None),
        ("03.05.26.md", None),
        ("2026-Q5.md", None),
        ("faq2 2026.md", None),
        ("a/2026-13-01.md", None),
        ("a/2026-02-31.md", None),
        ("memory/notes/mem_a_1732406400_ab12.md", None),
        ("12345678.md", None),
        ("2025-W54.md", None),
        ("docs/2025/plan.md", None),
        ("x.md", None),
    ],
)
def test_names_of_files_and_folders(path: str, days: str | None) -> None:
    """As Obsidian, Logseq and people name them; a week and a month have a first and a last day."""
    found = days_of_path(path)
    said = None if found is None else f"{found.first}" if found.is_day else f"{found.first} {found.last}"
    assert said == days


@pytest.mark.parametrize(
    ("text", "day", "has_moment"),
    [
        ("---\ndate: 2025-02-14\n---\nx", "2025-02-14", False),
        ("---\ntitle: x\nDate: 2025-02-14T23:30:00+09:00\n---\n", "2025-02-14", False),
        ("---\ncreated: 2025-02-14T23:30:00Z\n---\n", "2025-02-14", True),
        ("---\ncreated: 2025-02-14T00:00:00Z\n---\n", "2025-02-14", False),
        ("+++\ndate = 2025-02-14T10:00:00Z\n+++\n", "2025-02-14", True),
        ('+++\nday = "14 février 2025"\n+++\n', "2025-02-14", False),
        ("date:: [[2025-01-15]]\n- x", "2025-01-15", False),
        ("\ufeffdate:: [[2025-01-15]]\n- x", "2025-01-15", False),
        ("---\ndate created: Friday, February 14th 2025, 9:01:00 pm\n---\n", "2025-02-14", False),
        ("---\ncreated_at: 2025-02-14\n---\n", "2025-02-14", False),
        ("---\ncreatedAt: 2025-02-14T23:30:00Z\n---\n", "2025-02-14", True),
        ("---\npubDate: 2025-02-14\n---\n", "2025-02-14", False),
        ("---\ncreated: 20250214103000\n---\n", "2025-02-14", False),
        ("---\ndate:\n  - 2025-02-14\n---\n", "2025-02-14", False),
        ("---\ndate: 1739491200\n---\n", None, False),
        ("---\ncreation: 2025-02-14\n---\n", None, False),
        ("---\ndate: tomorrow\n---\n", None, False),
        ("---\ndate: 2025-02-30\n---\n", None, False),
        ("---\ndate: 3/4/2025\n---\n", None, False),
        ("no front matter\ndate: 2025-02-14\n", None, False),
    ],
)
def test_front_matter(text: str, day: str | None, has_moment: bool) -> None:
    """A time of an author's zone is of his day; one in UTC is of whatever day it is for the reader."""
    found = day_of_matter(text)
    assert (str(found.span.first) if found else None) == day
    assert (found is not None and found.moment is not None) == has_moment


def test_a_name_counts_before_the_front_matter_and_that_before_a_month() -> None:
    """What is said more exactly."""
    matter = "---\ndate: 2025-02-14\n---\n"
    assert stated_day("2025-02-13.md", matter) == (DaySpan(date(2025, 2, 13), date(2025, 2, 13)), None)
    assert stated_day("2025-02.md", matter) == (DaySpan(date(2025, 2, 14), date(2025, 2, 14)), None)


_YEAR = DaySpan(date(2026, 1, 1), date(2026, 12, 31))
_WEEK = DaySpan(date(2025, 2, 10), date(2025, 2, 16))


@pytest.mark.parametrize(
    ("heading", "around", "day"),
    [
        ("2026-11-24", None, "2026-11-24"),
        ("Friday, 24 November 2026", None, "2026-11-24"),
        ("24.11.2026", None, "2026-11-24"),
        ("Log > 24. November 2026 > Work", None, "2026-11-24"),
        ("[1.2.0] - 2024-05-06", None, "2024-05-06"),
        ("Nov 24", _YEAR, "2026-11-24"),
        ("Di, 24.11.", _YEAR, "2026-11-24"),
        ("11月24日", _YEAR, "2026-11-24"),
        ("24 de noviembre", _YEAR, "2026-11-24"),
        ("2026 > November > Tue 24", None, "2026-11-24"),
        ("Monday", _WEEK, "2025-02-10"),
        ("Nov 24", None, None),
        ("Plan for 2026-12-24", None, None),
        ("3/4/2026", None, None),
        ("1.2 Setup", _YEAR, None),
        ("Step 3", _YEAR, None),
        ("May the force", _YEAR, None),
        ("From 2026-11-01 to 2026-11-24", None, None),
    ],
)
def test_headings(heading: str, around: DaySpan | None, day: str | None) -> None:
    """The year may be that of the file, the folder or a heading above; a day to come dates nothing."""
    found = days_of_headings(heading, around)
    assert (str(found.first) if found else None) == day


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("- 2026-11-24: x\n- 2026-11-25 09:00 y", ("2026-11-24", "2026-11-25")),
        ("[24.11.2026] x", ("2026-11-24", "2026-11-24")),
        ("| 2026-11-24 | y |", ("2026-11-24", "2026-11-24")),
        ("- 25/11/26: x\n- 11/26/26 y", ("2026-11-25", "2026-11-26")),
        ("[24.11.26 10:30] x", ("2026-11-24", "2026-11-24")),
        ("- 3/5/26: x", None),  # of two days
        ("- [[2025-01-15]] x", ("2025-01-15", "2025-01-15")),
        ("we met on 2026-11-24", None),
        ("1990-01-01 a\n2020-01-01 b", None),
    ],
)
def test_entries_of_a_log(text: str, days: tuple[str, str] | None) -> None:
    """The date has to lead the line; years of dates are a list and no log."""
    found = days_of_entries(text)
    assert (None if found is None else (str(found.first), str(found.last))) == days


@pytest.mark.parametrize(
    "part", ["2026 ", "0123456789", "2026-", "2026年", "20260303", "January ", "3.3.", "3/3/26", "33.33.", "１"]
)
def test_no_text_takes_long(part: str) -> None:
    """4 MB of what looks like dates."""
    text = part * (4_000_000 // len(part))
    began = time.process_time()
    other_forms(text)
    days_of_entries(text)
    days_of_headings(text, None)
    stated_day("x.md", text)
    assert time.process_time() - began < 10


@given(st.text(alphabet=st.sampled_from("0129-/. \n年月日MarchмартаW#[]"), max_size=80))
def test_no_text_is_too_strange(text: str) -> None:
    """Whatever stands there."""
    other_forms(text)
    for found in (days_of_entries(text), days_of_headings(text, _YEAR), days_of_path(text)):
        assert found is None or found.first <= found.last
