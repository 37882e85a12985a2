"""The days that a question speaks of."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from tests.support.deadline import DEADLINE_S

from confide_daemon.embedding import LoadedModel
from confide_daemon.embedding.local.minilm import load_minilm
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared
from confide_memory.tools.days import days_of

SATURDAY = date(2026, 11, 21)


@pytest.mark.parametrize(
    ("asked", "days"),
    [
        ("what did we do yesterday?", "2026-11-20"),
        ("what was decided the day before yesterday", "2026-11-19"),
        ("last week's decisions", "2026-11-09 to 2026-11-15"),
        ("what broke this week", "2026-11-16 to 2026-11-21"),
        ("on Monday we deployed", "2026-11-16"),
        ("last Saturday", "2026-11-14"),
        ("what changed in May", "2026-05-01 to 2026-05-31"),
        ("what changed in December", "2025-12-01 to 2025-12-31"),
        ("everything since June", "2026-06-01 to 2026-11-21"),
        ("the outage of March 2025", "2025-03-01 to 2025-03-31"),
        ("the outage of 7 May 2023", "2023-05-07"),
        ("the outage of May 7, 2023", "2023-05-07"),
        ("the outage of 2026-05-03", "2026-05-03"),
        ("what did we do this morning", "2026-11-21"),
        ("what came on Nov 20", "2026-11-20"),
        ("what came on 20 Nov", "2026-11-20"),
        ("what did we do since Monday", "2026-11-16 to 2026-11-21"),
        ("what did we do over the weekend", "2026-11-14 to 2026-11-15"),
        ("was war am Wochenende", "2026-11-14 to 2026-11-15"),
        ("what happened in week 46", "2026-11-09 to 2026-11-15"),
        ("was war in KW 50", "2025-12-08 to 2025-12-14"),
        ("notes of 2026-W46", "2026-11-09 to 2026-11-15"),
        ("what did we sell in Q3", "2026-07-01 to 2026-09-30"),
        ("what did we sell in Q4 2025", "2025-10-01 to 2025-12-31"),
        ("last quarter", "2026-07-01 to 2026-09-30"),
        ("what did we decide in 2025", "2025-01-01 to 2025-12-31"),
        ("was war am 20.11.?", "2026-11-20"),
        ("vor einer Woche", "2026-11-11 to 2026-11-17"),
        ("il y a trois jours", "2026-11-18"),
        ("hace tres días", "2026-11-18"),
        ("две недели назад", "2026-11-04 to 2026-11-10"),
        ("in the last 10 days", "2026-11-11 to 2026-11-21"),
        ("three days ago", "2026-11-18"),
        ("two weeks ago", "2026-11-04 to 2026-11-10"),
        ("last month", "2026-10-01 to 2026-10-31"),
        ("last year", "2025-01-01 to 2025-12-31"),
        ("what is due tomorrow", "2026-11-22"),
        ("from 3 March 2026 to 9 March 2026", "2026-03-03 to 2026-03-09"),
        ("between 2026-03-03 and 2026-03-09", "2026-03-03 to 2026-03-09"),
        ("what is due on 3/4/2026", "2026-04-03 or 2026-03-04"),
        ("was haben wir gestern gemacht?", "2026-11-20"),
        ("qu'avons-nous fait hier ?", "2026-11-20"),
        ("¿qué hicimos ayer?", "2026-11-20"),
        ("cosa abbiamo fatto ieri", "2026-11-20"),
        ("o que fizemos ontem?", "2026-11-20"),
        ("昨日何をしましたか", "2026-11-20"),
        ("昨天我们做了什么", "2026-11-20"),
        ("어제 우리는 무엇을 했나요", "2026-11-20"),
        ("что мы делали вчера", "2026-11-20"),
        ("हमने कल क्या किया", "2026-11-20"),
        ("ماذا فعلنا أمس؟", "2026-11-20"),
        ("am 3. März", "2026-03-03"),
        ("3月3日に何を", "2026-03-03"),
        ("в марте", "2026-03-01 to 2026-03-31"),
        ("vor 3 Tagen", "2026-11-18"),
        ("3日前", "2026-11-18"),
        ("letzte Woche", "2026-11-09 to 2026-11-15"),
        ("上周", "2026-11-09 to 2026-11-15"),
        ("letzten Montag", "2026-11-16"),
        ("月曜日", "2026-11-16"),
    ],
)
def test_words_that_name_days(asked: str, days: str) -> None:
    """As a person means them: calendar weeks and months, the last such weekday or month."""
    found = days_of(asked, SATURDAY)
    assert found is not None
    assert found.name == days


WEDNESDAY = date(2026, 5, 20)


@pytest.mark.parametrize(
    ("asked", "days"),
    [
        ("what was decided on the 3rd", "2026-05-03"),
        ("what did we do on the 25th?", "2026-04-25"),
        ("what happened on the 3rd of last month", "2026-04-03"),
        ("was war am 3.?", "2026-05-03"),
        ("am 3.5.26", "2026-05-03"),
        ("notes of 03.05.26", "2026-05-03"),
        ("5/13/26", "2026-05-13"),
        ("13/5/26", "2026-05-13"),
        ("log of 20260503", "2026-05-03"),
        ("this Tuesday", "2026-05-19"),
        ("Tuesday last week", "2026-05-12"),
        ("last week's Tuesday", "2026-05-12"),
        ("letzte Woche am Dienstag", "2026-05-12"),
        ("a few days ago", "2026-05-14 to 2026-05-18"),
        ("vor ein paar Wochen", "2026-04-08 to 2026-05-06"),
        ("last 7 days", "2026-05-13 to 2026-05-20"),
        ("the past month", "2026-04-20 to 2026-05-20"),
        ("in den letzten drei Tagen", "2026-05-17 to 2026-05-20"),
        ("en los últimos 2 días", "2026-05-18 to 2026-05-20"),
        ("ces trois derniers jours", "2026-05-17 to 2026-05-20"),
        ("KW 12/2026", "2026-03-16 to 2026-03-22"),
        ("W12 2026", "2026-03-16 to 2026-03-22"),
        ("week 12 of 2026", "2026-03-16 to 2026-03-22"),
        ("12. KW", "2026-03-16 to 2026-03-22"),
        ("wk 50", "2025-12-08 to 2025-12-14"),
        ("2026-W12-3", "2026-03-18"),
        ("Q2 2026", "2026-04-01 to 2026-06-30"),
        ("second quarter of 2026", "2026-04-01 to 2026-06-30"),
        ("the last quarter of 2025", "2025-10-01 to 2025-12-31"),
        ("im dritten Quartal", "2025-07-01 to 2025-09-30"),
        ("2. Quartal 2026", "2026-04-01 to 2026-06-30"),
        ("this quarter", "2026-04-01 to 2026-05-20"),
        ("H1 2026", "2026-01-01 to 2026-06-30"),
        ("second half of 2025", "2025-07-01 to 2025-12-31"),
        ("mid-May", "2026-05-11 to 2026-05-20"),
        ("mid-May 2025", "2025-05-11 to 2025-05-20"),
        ("Ende Februar", "2026-02-21 to 2026-02-28"),
        ("à la fin février", "2026-02-21 to 2026-02-28"),
        ("early 2026", "2026-01-01 to 2026-04-30"),
        ("last May", "2025-05-01 to 2025-05-31"),
        ("letzten Dezember", "2025-12-01 to 2025-12-31"),
        ("05/2026", "2026-05-01 to 2026-05-31"),
        ("notes of 2026-04", "2026-04-01 to 2026-04-30"),
        ("since yesterday", "2026-05-19 to 2026-05-20"),
        ("since 3 May", "2026-05-03 to 2026-05-20"),
        ("seit Montag", "2026-05-18 to 2026-05-20"),
        ("between 3 and 9 May", "2026-05-03 to 2026-05-09"),
        ("3.-9. Mai", "2026-05-03 to 2026-05-09"),
        ("May 3-9, 2025", "2025-05-03 to 2025-05-09"),
        ("from May 3 to May 9", "2026-05-03 to 2026-05-09"),
        ("what did we decide on 3/5/26", "2026-05-03 or 2026-03-05"),
        ("what did we decide on 3/5?", "2026-05-03 or 2026-03-05"),
        ("what's on 24/12?", "2025-12-24"),
        ("on November the 24th", "2025-11-24"),
        ("what did we do in the last 24 hours?", "2026-05-19 to 2026-05-20"),
        ("in the last hour", "2026-05-20"),
        ("three hours ago", "2026-05-20"),
        ("in den letzten 48 Stunden", "2026-05-18 to 2026-05-20"),
        ("a fortnight ago", "2026-05-03 to 2026-05-09"),
        ("over the last fortnight", "2026-05-06 to 2026-05-20"),
        ("vor einem Jahr", "2024-11-19 to 2025-11-18"),
        ("in the last two years", "2024-05-20 to 2026-05-20"),
        ("last winter", "2025-12-01 to 2026-02-28"),
        ("last spring", "2025-03-01 to 2025-05-31"),
        ("in spring", "2026-03-01 to 2026-05-31"),
        ("since last summer", "2025-06-01 to 2026-05-20"),
        ("fall 2025", "2025-09-01 to 2025-11-30"),
        ("winter 2025/26", "2025-12-01 to 2026-02-28"),
        ("was haben wir letzten Herbst gemacht?", "2025-09-01 to 2025-11-30"),
        ("l'été dernier", "2025-06-01 to 2025-08-31"),
        ("el invierno pasado", "2025-12-01 to 2026-02-28"),
        ("прошлым летом", "2025-06-01 to 2025-08-31"),
        ("去年夏天", "2025-06-01 to 2025-08-31"),
        ("the week before last", "2026-05-04 to 2026-05-10"),
        ("vorletzte Woche", "2026-05-04 to 2026-05-10"),
        ("先々週", "2026-05-04 to 2026-05-10"),
        ("三天前", "2026-05-17"),
        ("일주일 전", "2026-05-10 to 2026-05-16"),
        ("قبل يومين", "2026-05-18"),
        ("неделю назад", "2026-05-10 to 2026-05-16"),
        ("iki gün önce", "2026-05-18"),
        ("il y a quinze jours", "2026-05-05"),
        ("eleven days ago", "2026-05-09"),
        ("on Fri", "2026-05-15"),
        ("Monday morning", "2026-05-18"),
        ("since the weekend", "2026-05-16 to 2026-05-20"),
        ("what is due next week", "2026-05-25 to 2026-05-31"),
        ("on Monday next week", "2026-05-25"),
        ("next Friday", "2026-05-22 or 2026-05-29"),
        ("what is on the day after tomorrow", "2026-05-22"),
        ("was ist übermorgen", "2026-05-22"),
        ("what did we do in the week of May 6?", "2026-05-04 to 2026-05-10"),
        ("in der Woche vom 6. Mai", "2026-05-04 to 2026-05-10"),
        ("the second week of April", "2026-04-08 to 2026-04-14"),
        ("last week of March", "2026-03-25 to 2026-03-31"),
        ("letzte Woche im März", "2026-03-25 to 2026-03-31"),
    ],
)
def test_words_that_point_to_days(asked: str, days: str) -> None:
    """To a part of a month or a year, a week, a quarter, a range, or back from today."""
    found = days_of(asked, WEDNESDAY)
    assert found is not None
    assert found.name == days


@pytest.mark.parametrize(
    ("asked", "days"),
    [
        ("what happened since 2026-05-12", "2026-05-12 to 2026-05-20"),
        ("what did we do after 2026-05-12?", "2026-05-13 to 2026-05-20"),
        ("what did we do before 2026-05-12?", "the time until 2026-05-11"),
        ("what happened until yesterday", "the time until 2026-05-19"),
        ("what did we use before March", "the time until 2026-02-28"),
        ("what changed after last week", "2026-05-18 to 2026-05-20"),
        ("what changed since 2025", "2025-01-01 to 2026-05-20"),
        ("was war vor dem 12. Mai", "the time until 2026-05-11"),
        ("nach dem 12. Mai", "2026-05-13 to 2026-05-20"),
        ("bis gestern", "the time until 2026-05-19"),
        ("avant hier", "the time until 2026-05-18"),
        ("antes del 12 de mayo", "the time until 2026-05-11"),
        ("what broke after yesterday's deploy", "2026-05-19 to 2026-05-20"),
        ("what worked before yesterday's deploy", "the time until 2026-05-19"),
        # One day that is near another, and what is still to come: the day that is named.
        ("what did we do the day before 2026-05-12", "2026-05-12"),
        ("what did we do the Tuesday before 2026-05-12", "2026-05-12"),
        ("what is due before 2026-06-12", "2026-06-12"),
        ("what is closed until tomorrow", "2026-05-21"),
    ],
)
def test_words_before_days_that_mean_another_time(asked: str, days: str) -> None:
    """Before, after, until and since a day is not on that day."""
    found = days_of(asked, WEDNESDAY)
    assert found is not None
    assert found.name == days


@pytest.mark.parametrize(
    "asked", ["what did we do yesterday evening?", "was war gestern Abend", "what happened Monday morning?"]
)
def test_the_part_of_a_day_is_no_other_subject(asked: str) -> None:
    """The notes of the day need not say in which part of it they were written."""
    found = days_of(asked, WEDNESDAY)
    assert found is not None
    assert found.is_all


@pytest.mark.parametrize("asked", ["what happened since 2026-05-12", "before 2026-05-12?", "was war vor dem 12. Mai?"])
def test_such_a_word_is_no_other_subject(asked: str) -> None:
    """A question for all of a time, in which "since" was looked for like a name."""
    found = days_of(asked, WEDNESDAY)
    assert found is not None
    assert found.is_all


@pytest.mark.parametrize(
    ("today", "day"),
    [(WEDNESDAY, "2024-02-29"), (date(2028, 2, 29), "2028-02-29"), (date(2028, 1, 5), "2024-02-29")],
)
def test_the_last_leap_day(today: date, day: str) -> None:
    """Most years have none."""
    found = days_of("what happened on 29 February?", today)
    assert found is not None
    assert found.name == day


@pytest.mark.parametrize(
    "asked",
    [
        "on the 3rd floor", "the 3rd attempt", "on the 3rd of every month", "released 03.05.26", "version 03.05.26", "Ubuntu 20.04.06",
        "3.5.26", "99999999", "on 24/7 support", "which Spring Boot is used in spring boot", "in fall back mode",
        "did sales fall", "the last week of the sprint", "the last year of the plan", "half a year ago", "he moved 4 years ago",
        "2005年前", "on 3/5 of the machines", "20261399", "the early may be lost", "this Friday", "end of set", "3-5 out of 20",
        "24/2026", "chapter 2. quarter", "a few notes ago", "W99 2026", "by the 5th try", "3-9 of them", "after 2000 requests",
        "before may I ask",
    ],
)  # fmt: skip
def test_words_that_point_to_none(asked: str) -> None:
    """Places in a row, versions, shares, other meanings of a season's name, and what is still to come."""
    assert days_of(asked, WEDNESDAY) is None


@pytest.mark.parametrize(
    "asked",
    [
        "who may march",
        "Sunday school",
        'the song "last week"',
        "what does `yesterday()` return",
        "the file memory/2026-05-03.md",
        "yesterday and last month",  # two different times
        "on 31 February",
        "2026-13-45",
        "Was ist hier passiert?",
        "por la mañana",
        "version 1.2.2026",
        "what is in section 2.3.",
        "keys in 2048 bits",
        "Q3 of the survey",
        "which port in 8080",
        "weekend shifts",
        "日曜大工",
        "कला के बारे में",
        "",
    ],
)
def test_words_that_name_none(asked: str) -> None:
    """Verbs, quoted text, code, paths, dates that do not exist, and what could mean two times."""
    assert days_of(asked, SATURDAY) is None


@given(st.text(max_size=100), st.dates(date(1990, 1, 1), date(2100, 1, 1)))
def test_no_text_is_too_strange(text: str, today: date) -> None:
    """Whatever is asked, and whenever."""
    found = days_of(f"in the last {text} days, {text} ago, in May {text}", today)
    assert found is None or found.first <= found.last


@pytest_asyncio.fixture
async def logs(tmp_path: Path) -> AsyncIterator[Space]:
    """Three days of a log, and minutes of two meetings in one file, with the packaged model."""
    model = LoadedModel.ready(load_minilm(threads=1))
    opened = await Space.open(tmp_path / "l.db", os.urandom(32), SpaceShared(IndexSettings(), model), space_id="l")
    for path, text in LOGS.items():
        await opened.documents.put("p", path, text, base=0, author="a")
    assert await opened.wait_indexed(timeout_s=DEADLINE_S)
    yield opened
    await opened.close()


LOGS = {
    "memory/2025-11-24.md": "# 2025-11-24\n\n- cooked lentil soup with Jo\n- cleaned the bicycle\n",
    "memory/2025-11-25.md": "# 2025-11-25\n\n- took the train to Hamburg\n- dinner with Maya\n",
    "memory/2025-11-27.md": "# 2025-11-27\n\n- the train to Bremen leaves on 12 December\n- the cat is at the vet\n",
    "memory/meetings.md": "# Meetings\n\n## Nov 11, 2025\n\n- Acme wants a login by January\n- the budget is 45,000\n\n"
    "## Nov 13, 2025\n\n- the heating of the server room is broken\n- a candidate comes on Friday\n",
}


async def test_a_day_of_which_nothing_is_gets_nothing(logs: Space) -> None:
    """The notes of other days were shown, since their headings look like the question."""
    assert await found(logs, "what happened on 2025-11-26?") == []
    assert await found(logs, "what happened on 2025-11-25?")


async def test_another_day_is_no_certain_answer(logs: Space) -> None:
    """What was cooked on the day before had a score of 0.8."""
    result = await logs.index.searcher.search(SearchQuery("what did we cook on 25 November 2025?", min_score=0.0))
    soup = next(hit for hit in result.hits if "lentil" in hit.snippet)
    assert soup.score < 0.5
    result = await logs.index.searcher.search(SearchQuery("what did we cook on 24 November 2025?"))
    assert result.hits[0].score > 0.5
    assert "lentil" in result.hits[0].snippet


async def test_a_day_to_come_is_told_of_before(logs: Space) -> None:
    """A note names a day without its year, and is of another day."""
    result = await logs.index.searcher.search(SearchQuery("where does the train go on 12 December?"))
    assert "Bremen" in result.hits[0].snippet
    assert result.hits[0].score > 0.5


async def test_what_holds_today_was_said_before(logs: Space) -> None:
    """ "Today" is now in such a question; where it asks for the day alone, other days are no answer."""
    result = await logs.index.searcher.search(SearchQuery("what login does Acme want today?"))
    assert "Acme" in result.hits[0].snippet
    assert result.hits[0].score > 0.5
    assert not any("lentil" in text or "Acme" in text for text in await found(logs, "what happened today?"))


@pytest.mark.parametrize("asked", ["what did we discuss on 13 November 2025?", "what was agreed on 2025-11-13?"])
async def test_what_is_of_the_day_is_found_whatever_the_verb(logs: Space, asked: str) -> None:
    """No line of the minutes says that it was discussed, and nothing was found."""
    assert "heating" in (await found(logs, asked))[0]


@pytest_asyncio.fixture
async def space(tmp_path: Path) -> AsyncIterator[Space]:
    opened = await Space.open(
        tmp_path / "s.db", os.urandom(32), SpaceShared(IndexSettings(), LoadedModel.none()), space_id="s"
    )
    for path, text in DIARY.items():
        await opened.documents.put("p", path, text, base=0, author="a")
    yield opened
    await opened.close()


DIARY = {
    "log.md": "# Log\n\n## 2026-11-19\n\n- moved the printer\n\n## Friday, 20 November 2026\n\n- watered the ferns\n",
    "journals/2025_01_15.md": "- repaired the gate\n",
    "20250118.md": "- sold the bicycle\n",
    "log/2025/01/19.md": "- painted the fence\n",
    "blog.md": "---\ndate: 2025-02-14\n---\n\nBought roses.\n",
    "2024-W07.md": "# Week\n\n## Monday\n\n- sharpened the saw\n",
    "memory/2026-10-14.md": "Met the electrician\n",
    "bills.md": "- the rent is due on 3 March 2026\n\n- the tax is due on 4. April 2026\n",
    "short.md": "# Journal\n\n## 24.11.25\n\n- oiled the hinge\n\n## 11/25/25\n\n- mended the kettle\n",
    "today.md": "- wrote a poem\n",
}


async def found(space: Space, asked: str, **limits: object) -> list[str]:
    result = await space.index.searcher.search(SearchQuery(asked, **limits))  # type: ignore[arg-type]
    return [hit.snippet for hit in result.hits]


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        ("what happened on 2026-11-19?", "printer"),
        ("what happened on 20 November 2026?", "ferns"),
        ("was ist am 20.11.2026 passiert?", "ferns"),
        ("what did we do on 15 January 2025", "gate"),
        ("2025年1月18日に何をしましたか", "bicycle"),
        ("qu'avons-nous fait le 19 janvier 2025", "fence"),
        ("what happened on 2025-02-14", "roses"),
        ("what happened on 2024-02-12", "saw"),
        ("Whom did we meet in October 2026?", "electrician"),
        ("what is due on 2026-03-03?", "rent"),
        ("¿qué vence el 3 de marzo de 2026? rent", "rent"),
        ("what is due on 4/4/2026?", "tax"),
        ("what did we do on 24 November 2025?", "hinge"),
        ("what happened on 2025-11-25?", "kettle"),
    ],
)
async def test_a_day_is_found_where_people_write_it(space: Space, asked: str, first: str) -> None:
    """Asked in one form and written in another."""
    snippets = await found(space, asked)
    assert snippets
    assert first in snippets[0]


@pytest.mark.parametrize(
    ("asked", "is_there", "is_not"),
    [
        ("what happened since 2026-11-20", "ferns", "printer"),
        ("what did we do after 2026-11-19?", "ferns", "printer"),
        ("what did we do before 2026-11-20?", "printer", "ferns"),
        ("what happened until 2026-11-19?", "printer", "ferns"),
    ],
)
async def test_a_time_begins_or_ends_at_a_day(space: Space, asked: str, is_there: str, is_not: str) -> None:
    """What is from then is found, and not what the named day alone holds."""
    snippets = await found(space, asked, max_results=20)
    assert any(is_there in text for text in snippets)
    assert not any(is_not in text for text in snippets)


async def test_an_old_diary_is_not_of_today(space: Space) -> None:
    """Although its files are: only what states no day is of the day of its last change."""
    snippets = await found(space, "what did we do today?")
    assert [text for text in snippets if "poem" in text or "due" in text]
    assert not [text for text in snippets if any(word in text for word in ("gate", "fence", "roses", "printer"))]


async def test_chunks_of_other_days_are_left_out_of_a_time(space: Space) -> None:
    """A log holds many days, of which the filter is asked for one."""
    day = datetime(2026, 11, 20, 12, tzinfo=UTC)
    snippets = await found(space, "printer ferns", since=day, until=day, min_score=0.0)
    assert len(snippets) == 1
    assert "ferns" in snippets[0]


async def test_a_day_begins_in_the_zone_of_who_asks(space: Space) -> None:
    """A text of now is of tomorrow for half of the world, at some hours."""
    for hours in (-12, 14):
        zone = timezone(timedelta(hours=hours))
        today = datetime.now(zone).date()
        assert await found(space, f"poem of {today}", zone=zone, since=datetime.now(zone))
        assert any("poem" in text for text in await found(space, "what did we do today?", zone=zone))
        assert not any("poem" in text for text in await found(space, "what did we do yesterday?", zone=zone))
