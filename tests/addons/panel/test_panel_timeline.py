"""The timeline, from known numbers: each plot is as high as they are, and its table has the same for whoever does not see it."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from confide_panel import rendering
from confide_panel.browser_sessions import BrowserSessions
from confide_panel.pages import timeline

TODAY = datetime.now().astimezone().date()
KINDS = {"agent": 8, "owner": 4, "derived": 2, "deleted": 9, "recalled": 6}


def row(back: int, project: str, kind: str, count: int) -> dict[str, Any]:
    return {"day": str(TODAY - timedelta(days=back)), "project": project, "kind": kind, "count": count}


DAYS = [
    *(row(0, "shop", kind, count) for kind, count in KINDS.items()),
    row(3, "aviary", "agent", 7),
    row(3, "aviary", "recalled", 12),
    row(3, "shop", "said", 5),
    row(200, "shop", "agent", 20),
]
AGES = [{"days": days, "recalls": n} for days, n in ((1, 10), (7, 5), (30, 0), (90, 2), (365, 0), (None, 1))]


class Desk:
    """What the page is given."""

    asking = 0

    def __init__(self, state: Path) -> None:
        self.gateway = SimpleNamespace(paths=SimpleNamespace(state=state), calls=SimpleNamespace(project="shop"))
        self.visit, _ = BrowserSessions().begin()
        self.link = self

    async def request(self, op: str, _body: dict[str, Any], **_: Any) -> dict[str, Any]:
        assert op == "days"
        return {"days": DAYS, "ages": AGES}

    def url(self, page: str = "", /, **query: Any) -> str:
        return rendering.address(self.visit.base, page, query)

    def page(self, template: str, **values: Any) -> Any:
        return rendering.answer(template, self.visit, desk=self, url=self.url, **values)


@pytest.fixture
async def shown(tmp_path: Path) -> str:
    """The page, after a hundred answers of hooks that took 1 to 100 ms, and some that were none."""
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    now = int(datetime.now().timestamp())
    lines = [f"{now - n} prompt answered {n} -" for n in range(1, 101)] + [f"{now} prompt silent 9000 -"] * 5
    (hooks / "events").write_text("\n".join(lines) + "\n")
    answer = await timeline.show(Desk(tmp_path))  # type: ignore[arg-type]
    return bytes(answer.body).decode()


def svg(page: str, label: str) -> str:
    return re.findall(rf'<svg [^>]*aria-label="{label}.*?</svg>', page, re.DOTALL)[0]


def heights(drawing: str) -> dict[str, list[float]]:
    """Of the bars of each colour."""
    paths = re.findall(r'class="(c\d)" d="([^"]+)"', drawing)
    return {name: [float(tall) for tall in re.findall(r"v([\d.]+)h-", shape)] for name, shape in paths}


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the table below a summary."""
    table = page.partition(f"<summary>{heading}")[2].partition("</details>")[0]
    return [
        [unescape(re.sub("<[^>]+>", "", cell)) for cell in re.findall(r"<td[^>]*>(.*?)</td>", each)]
        for each in re.findall(r"<tr .*?</tr>", table.partition("<tbody")[2], re.DOTALL)
    ]


async def test_what_came_new_is_as_high_as_it_was_much(shown: str) -> None:
    """By who wrote it, without what was deleted; and by project."""
    found = heights(svg(shown, "New texts by day, the last"))
    assert sorted(found) == ["c1", "c2", "c3", "c4"]  # agents, you, learned, said
    unit = found["c2"][0] / 4
    assert [tall / unit for tall in (*found["c1"], *found["c3"], *found["c4"])] == pytest.approx([7, 8, 2, 5], rel=0.01)
    by_project = heights(svg(shown, "New texts by day and project"))
    unit = by_project["c1"][0] / 5
    assert [tall / unit for tall in (*by_project["c1"], *by_project["c2"])] == pytest.approx([5, 14, 7], rel=0.02)


async def test_what_was_recalled_and_the_tables(shown: str) -> None:
    found = heights(svg(shown, "Recalls by day"))
    assert found["c1"][0] / found["c2"][0] == pytest.approx(12 / 6, rel=0.01)
    three = str(TODAY - timedelta(days=3))
    assert rows(shown, "The last 28 days") == [
        [str(TODAY), "8", "4", "2", "", "6"],
        [three, "7", "", "", "5", "12"],
    ]
    assert rows(shown, "The same by project") == [
        [str(TODAY), "shop", "14", "6"],
        [three, "shop", "5", ""],
        [three, "aviary", "7", "12"],
    ]


async def test_a_year_of_days_has_each_in_its_shade(shown: str) -> None:
    """26 in all on three days; the one with most is darkest."""
    drawing = svg(shown, "New texts on each day of a year")
    shades = {name: shape.count("M") for name, shape in re.findall(r'class="(q\d)" d="([^"]+)"', drawing)}
    assert {name: n for name, n in shades.items() if name != "q0"} == {"q3": 2, "q4": 1}
    assert sum(shades.values()) == 7 * 52 + TODAY.weekday() + 1
    assert "46 new texts in a year" in shown


async def test_ages_and_answers(shown: str) -> None:
    """As bars and as a line; how much of each is said beside it."""
    ages = svg(shown, "Recalls by the age of the document")
    widths = [float(each) for each in re.findall(r'<rect[^>]* width="([\d.]+)"', ages)]
    assert [each / widths[0] for each in (widths[1], widths[3], widths[5])] == pytest.approx([0.5, 0.2, 0.1], abs=0.01)
    told = dict(re.findall(r"<dt>([^<]+)</dt><dd>([^<]+)</dd>", shown))
    assert told["recalled, changed within a day"] == "10"
    assert told["recalled, changed longer ago"] == "1"
    answered = {"fastest hook answer": "1 ms", "hook answers, median": "51 ms", "slowest hook answer": "100 ms"}
    assert answered.items() <= told.items()
    assert told["hook answers, p95"] == "96 ms"
    line = svg(shown, "Latency of hook answers")
    ys = [float(each) for each in re.findall(r'cy="([\d.]+)"', line)]
    assert ys == sorted(ys, reverse=True)
    assert "Latency of 100 hook answers" in shown
