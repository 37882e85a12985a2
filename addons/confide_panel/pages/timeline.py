"""Show by day the texts that were stored, learned and said, the recalls, the age of recalled
documents, and the latency of hooks.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

from starlette.responses import Response

from confide_memory.wire import revisions
from confide_memory.wire.revisions import CHANGES, ChangesRequest
from confide_panel.drawing import plots
from confide_panel.page_context import ASK_S, Found, PageContext
from confide_proxy.hooks import counts

DAYS: Final = 28
YEAR: Final = 371
KINDS: Final = {
    "agent": "stored by agents",
    "owner": "written by you",
    "derived": "learned",
    "said": "said",
    "untrusted": "from elsewhere",
}
"""Kinds of new texts, in the order of their colours, with their words for people. Deletions are not
among them.
"""
MOST_PROJECTS: Final = 5
_ANSWERED: Final = frozenset({counts.ANSWERED, counts.POINTED})
_SHARES: Final = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
_CHANGES: Final = 40
_LOOKED_AT: Final = 100
"""Changes since the beginning of a day, the newest first, among which the page looks for those of
the day. The daemon reads the text of each for its first line.
"""
_AGES: Final = {1: "a day", 7: "a week", 30: "a month", 90: "3 months", 365: "a year", None: "older"}


@dataclass(frozen=True, slots=True)
class Row:
    """The daemon's count for one day."""

    day: date
    project: str
    kind: str
    count: int


Series = dict[str, dict[date, int]]
"""Counts by day, for each name of a series."""


async def show(desk: PageContext) -> Response:
    """Show the last four weeks, and a calendar of a year."""
    now = datetime.now().astimezone()
    today = now.date()
    zone = int((now.utcoffset() or timedelta()).total_seconds() // 60)
    since = (now - timedelta(days=YEAR)).isoformat()
    told, events = await asyncio.gather(
        revisions.DAYS.ask(desk.link, {"since": since, "zone": zone}, timeout_s=ASK_S),
        asyncio.to_thread(counts.read, os.fspath(desk.gateway.paths.state)),
    )
    rows = [Row(date.fromisoformat(row["day"]), row["project"], row["kind"], row["count"]) for row in told["days"]]
    days = [today - timedelta(days=back) for back in reversed(range(DAYS))]
    by_kind = _by(rows, lambda row: KINDS.get(row.kind), days)
    stored = {name: by_kind[name] for name in KINDS.values() if name in by_kind}
    recalled = _largest(_by(rows, lambda row: row.project if row.kind == "recalled" else None, days))
    by_project = _largest(_by(rows, lambda row: row.project if row.kind in KINDS else None, days))
    each_day: Counter[date] = Counter()
    for row in rows:
        if row.kind in KINDS:
            each_day[row.day] += row.count
    return desk.page(
        "timeline.html",
        here="timeline",
        days=DAYS,
        year_total=sum(each_day.values()),
        stored=stored,
        stored_plot=plots.draw_bars(days, stored, label=f"New texts by day, the last {DAYS} days"),
        by_project=by_project,
        by_project_plot=plots.draw_bars(days, by_project, label=f"New texts by day and project, the last {DAYS} days"),
        project_table=_by_day_and_project(days, by_project, recalled),
        recalled=recalled,
        recalled_plot=plots.draw_bars(days, recalled, label=f"Recalls by day, the last {DAYS} days"),
        calendar=plots.calendar(each_day, today, label="New texts on each day of a year"),
        table=_by_day(days, stored, recalled),
        **_latency_figures([float(took_ms) for _, _, outcome, took_ms, _ in events if outcome in _ANSWERED]),
        **_age_figures({each["days"]: each["recalls"] for each in told["ages"]}),
    )


async def day(desk: PageContext) -> Response:
    """List the changes of one day in a project."""
    try:
        chosen = date.fromisoformat(desk.query("day", 10))
        begin = datetime(chosen.year, chosen.month, chosen.day).astimezone()
    except (ValueError, OverflowError):
        return desk.go("timeline", "The address has no valid date.")
    body: ChangesRequest = {"project": desk.project, "since": begin.isoformat(), "limit": _LOOKED_AT}
    told = await CHANGES.ask(desk.link, body, timeout_s=ASK_S)
    end = begin + timedelta(days=1)
    changes = [each for each in told["changes"] if datetime.fromisoformat(each["time"]) < end]
    return desk.page(
        "day.html",
        here="timeline",
        project=desk.project,
        day=chosen,
        changes=changes[:_CHANGES],
        total=len(changes),
        is_all=len(told["changes"]) < _LOOKED_AT,
        before=chosen - timedelta(days=1),
        after=chosen + timedelta(days=1),
    )


def _latency_figures(latencies: list[float]) -> Found:
    """Return the percentiles and the plot of the latency of hooks."""
    if not latencies:
        return {"latency": None, "latency_plot": None, "answers": 0}
    points = [(share, plots.percentile(latencies, share)) for share in _SHARES]
    drawn = plots.line(points, label="Latency of hook answers", unit="milliseconds")
    return {"latency": points, "latency_plot": drawn, "answers": len(latencies)}


def _age_figures(recalls: dict[int | None, int]) -> Found:
    """Return the counts and the plot of recalls by the age of the document."""
    ages = [(_AGES[days], count, f"{count:,}") for days, count in recalls.items() if days in _AGES]
    drawn = plots.bars(ages, label="Recalls by the age of the document")
    return {"ages": ages, "ages_plot": drawn if any(recalls.values()) else None}


def _by_day(days: list[date], stored: Series, recalled: Series) -> list[Found]:
    """Return a row for each day with counts, the last day first."""
    return [
        {
            "day": day,
            "kinds": [(name, of.get(day, 0)) for name, of in stored.items()],
            "recalled": sum(of.get(day, 0) for of in recalled.values()),
        }
        for day in reversed(days)
        if any(day in of for of in (*stored.values(), *recalled.values()))
    ]


def _by_day_and_project(days: list[date], stored: Series, recalled: Series) -> list[Found]:
    names = dict.fromkeys([*stored, *recalled])
    found = [
        {
            "day": day,
            "project": name,
            "stored": stored.get(name, {}).get(day),
            "recalled": recalled.get(name, {}).get(day),
        }
        for day in reversed(days)
        for name in names
    ]
    return [each for each in found if each["stored"] or each["recalled"]]


def _by(rows: list[Row], key: Callable[[Row], str | None], days: list[date]) -> Series:
    found: defaultdict[str, Counter[date]] = defaultdict(Counter)
    for row in rows:
        if row.day >= days[0] and (name := key(row)) is not None:
            found[name][row.day] += row.count
    return {name: dict(of) for name, of in found.items()}


def _largest(series: Series) -> Series:
    """Return as many series as there are colours, the largest first; the last one is the sum of the
    rest.
    """
    ordered = sorted(series.items(), key=lambda pair: -sum(pair[1].values()))
    if len(ordered) <= MOST_PROJECTS:
        return dict(ordered)
    rest: Counter[date] = Counter()
    for _, of in ordered[MOST_PROJECTS - 1 :]:
        rest.update(of)
    return {**dict(ordered[: MOST_PROJECTS - 1]), "others": dict(rest)}
