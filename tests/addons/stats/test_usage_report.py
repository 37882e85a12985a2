"""`confide stats`, its page in the panel and its line in `confide doctor`: what the counters say, without deleted notes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.programs.command import confide

from confide_panel import rendering
from confide_panel.browser_sessions import BrowserSessions
from confide_proxy.hooks import counts
from confide_proxy.hooks.server import usage
from confide_proxy.hooks.server.usage import ShownNote, UsageFile
from confide_proxy.paths import ProxyPaths
from confide_proxy.sync import project as projects
from confide_proxy.sync.project_names import NameOrigin, ProjectNames
from confide_stats.local import usage_page, usage_report

USED, UNUSED, GONE = (
    ShownNote("shop", f"memory/notes/{name}.md", f"mem_{name}") for name in ("aaaaa", "bbbbb", "ccccc")
)


class Here:
    """A device with a project, whose hooks have shown three notes; the file of one of them is deleted."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = folder / "shop"
        self.env = {"CONFIDE_HOME": str(self.home)}
        self.paths = ProxyPaths(
            self.home / "proxy.toml", self.home / "proxy", self.home / "global", self.home / "daemon"
        )
        self.paths.state.mkdir(mode=0o700, parents=True)
        (self.project / "memory/notes").mkdir(parents=True)
        for note in (USED, UNUSED):
            (self.project / note.path).write_text("x")
        ProjectNames(self.paths.projects).note(projects.identify(self.project), NameOrigin.FIRST)
        file = UsageFile(self.paths.state)
        now = time.time()
        for _ in range(usage.SINKS_AFTER):
            file.add(lambda state: state.show(usage.PROMPT, [USED, UNUSED, GONE], tokens=100, now=now))
        file.add(lambda state: state.read("shop", [USED.id], now))
        file.add(lambda state: state.show(usage.FAILURE, [USED], tokens=20, now=now, is_covered=True))
        file.flush()
        for event, ms in (("UserPromptSubmit", 20), ("UserPromptSubmit", 40), ("PreToolUse", 14), ("Stop", 900)):
            counts.note(str(self.paths.state), event=event, client="codex", outcome=counts.ANSWERED, ms=ms)


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def test_stats_say_what_was_shown_and_used(here: Here) -> None:
    """In words and as JSON: totals, the notes used most, and those that sank. A deleted note is in neither, nor in the file."""
    told = confide(here, "stats")
    assert told.code == 0, told.err
    assert "notes were shown 31 times, and used 2 times" in told.out
    assert "A note was there for 1 failure; none came again in the same session." in told.out
    assert "mem_aaaaa memory/notes/aaaaa.md [shop]: used 2 of 11, read 1" in told.out
    assert "mem_bbbbb memory/notes/bbbbb.md [shop]: shown 10 times since its last use" in told.out
    assert "ccccc" not in told.out
    assert "ccccc" not in (here.paths.state / "hooks" / usage.FILE).read_text()

    data = json.loads(confide(here, "stats", "--json").out)
    assert data["events"]["prompt"] == {
        "times": 10,
        "shown": 30,
        "used": 1,
        "ignored": 29,
        "tokens": 1000,
        "waitMs": {"median": 30, "p95": 40, "runs": 2},
    }
    assert data["events"]["search"]["waitMs"] is None
    assert [(one["id"], one["shown"], one["used"], one["comesLast"]) for one in data["notes"]] == [
        ("mem_aaaaa", {"prompt": 10, "failure": 1}, 2, False),
        ("mem_bbbbb", {"prompt": 10}, 0, True),
    ]


def test_a_folder_that_is_not_here_says_nothing_about_its_notes(here: Here) -> None:
    here.project.rename(here.project.with_name("elsewhere"))
    assert [note.id for note in usage_report.make_report(here.paths).unused] == ["mem_bbbbb", "mem_ccccc"]


def test_doctor_has_one_line(here: Here, tmp_path: Path) -> None:
    (line,) = usage_report.check(here.paths)
    assert line.state == "ok"
    said = "31 notes shown in 30 days, 2 used, 1 shown often and not used; about 1,020 tokens: confide stats"
    assert line.detail == said
    (line,) = usage_report.check(ProxyPaths(*[tmp_path / "no"] * 4))
    assert "no note" in line.detail


class Desk:
    """What the page is given."""

    asking = 0

    def __init__(self, paths: ProxyPaths) -> None:
        self.gateway = SimpleNamespace(paths=paths)
        self.visit, _ = BrowserSessions().begin()

    def page(self, template: str, **values: Any) -> Any:
        def url(page: str = "", /, **query: Any) -> str:
            return rendering.address(self.visit.base, page, query)

        return rendering.answer(template, self.visit, desk=self, url=url, **values)


async def test_the_panel_has_a_page_of_it(here: Here) -> None:
    """The same figures, and a link to each note."""
    page = bytes((await usage_page.show(Desk(here.paths))).body).decode()
    assert "notes were shown 31 times and used 2 times" in page
    assert 'href="usage"' in page or "/usage" in page
    used, unused = page.partition('id="unused"')[::2]
    assert "note/mem_aaaaa" in used
    assert "note/mem_bbbbb" in unused
    assert "note/mem_bbbbb" not in used
    assert "ccccc" not in page
