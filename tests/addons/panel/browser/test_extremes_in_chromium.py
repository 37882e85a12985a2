"""Pages with nothing to show, and with what is hard to show: very long titles and names, words without a break, other scripts, many notes.

`CONFIDE_PANEL_NOTES=10000` fills the crowded memory with so many.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.panel import fill
from tests.addons.panel.browser.conftest import AXE
from tests.addons.panel.browser.test_panel_in_chromium import (
    SCHEMES,
    SHOTS,
    WIDTHS,
    Tour,
    ask_for_use,
    go_to_uses,
    touring,
)
from tests.support.programs.gateway import Gateway, serving
from tests.support.programs.processes import Machine, wait_until

NOTES = int(os.environ.get("CONFIDE_PANEL_NOTES", "300"))
UNBROKEN = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft" * 3
STRANGE = (
    ("A title that goes on " + "and on " * 30 + "to the end", "Text."),
    (UNBROKEN[:190], f"{UNBROKEN}\n\nhttps://example.org/{'a/very/long/path/' * 12}\n\n`{UNBROKEN}`\n"),
    ("עברית: החנות כתובה באליקסיר", "שלום עולם. הפורט הוא 4000.\n\n- אחת\n- שתיים\n"),
    ("العربية: المتجر مكتوب بإكسير", "نص من اليمين إلى اليسار، مع English في الوسط."),
    (
        "🦊🦊🦊 a fox, and 漢字かな交じり文" + "漢字" * 30,
        "Emoji 🎉 in a text, 👩\u200d👩\u200d👧 a family, \u0645\u06cc\u200c\u062e, " + "漢字" * 80,
    ),
    ("A wide table", "| " + " | ".join(f"column {n}" for n in range(24)) + " |\n|" + "---|" * 24 + "\n" + "| x |" * 24 + "\n"),
    ("Deep", "\n".join(f"{'  ' * n}- level {n}" for n in range(14)) + "\n\n" + "".join(f"{'>' * n} quote {n}\n\n" for n in range(1, 9))),
)  # fmt: skip
PAGES: dict[str, Any] = {
    name: name
    for name in (
        *(
            "remember",
            "projects",
            "project",
            "entities",
            "graph",
            "timeline",
            "learned",
            "usage",
            "tasks",
            "devices",
            "health",
        ),
        *("deleted", "conflicts", "stale", "secrets", "uses"),
    )
} | {
    "search": "",
    "by-size": "project?sort=size",
    "day": "day?day=2026-11-25",
    "hits": lambda tour: tour.search("text english release lock"),
}


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    machine = Machine(tmp_path_factory.mktemp("empty"), "ann")
    try:
        with serving(machine) as found:
            wait_until("the daemon", lambda: machine.json("status"))
            yield found
    finally:
        machine.stop_local_daemon()


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    machine = Machine(tmp_path_factory.mktemp("crowded"), "a-machine-with-quite-a-long-name-of-its-own")
    machine.call_project("git.example.org/an-organisation-with-a-name/a-repository-that-is-called-so-" + "x" * 120)
    machine.write("MEMORY.md", "# Facts\n\nThe shop is written in Elixir.\n")
    try:
        with serving(machine) as found:
            wait_until("the first file", lambda: machine.json("ls")["documents"])
            fill(found, NOTES)
            for title, text in STRANGE:
                options = ("--title", title[:199], "--tag", title[:60], "--tag", "x" * 90, "--type", title[:90])
                machine.run("store", text, *options, "--entity", title[:90])
            machine.run("store", "Deep down.", "--path", f"memory/{'a-long-folder/' * 12}{'n' * 120}.md")
            machine.run("token", "new", "a-program-with-a-long-name-" + "y" * 36)
            machine.run("search", "release lock")
            yield found
    finally:
        machine.stop_local_daemon()


def look(tour: Tour, kind: str, scheme: str, width: int, pages: dict[str, Any]) -> list[str]:
    """What is wrong with these pages; with pictures of them where somebody wants to see them."""
    found: list[str] = []
    for name, way in pages.items():
        if callable(way):
            way(tour)
        else:
            tour.go(way)
        tour.page.evaluate(AXE.read_text(encoding="utf-8"))
        result = tour.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        found += [f"{name}: {each['id']} {each['nodes'][0]['html'][:120]}" for each in result["violations"]]
        if tour.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            found.append(f"{name}: wider than {width}")
        if SHOTS:
            tour.page.screenshot(path=Path(SHOTS) / f"{kind}-{name}-{scheme}-{width}.png", full_page=True)
    return found


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_empty_memory_looks_right(chromium: Any, empty: Gateway, scheme: str, width: int) -> None:
    with touring(chromium, empty, color_scheme=scheme, viewport={"width": width, "height": 900}) as tour:
        assert look(tour, "empty", scheme, width, PAGES) == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_hard_to_show_looks_right(chromium: Any, crowded: Gateway, scheme: str, width: int) -> None:
    with touring(chromium, crowded, color_scheme=scheme, viewport={"width": width, "height": 900}) as tour:
        listed = crowded.machine.json("ls", "--limit", "20")["documents"]
        strange = {each["title"]: each for each in listed if each["id"] and not each["title"].startswith("Note ")}
        assert len(strange) == len(STRANGE)
        notes = {f"note{n}": f"note/{each['id']}" for n, each in enumerate(strange.values())}
        one = next(iter(strange.values()))["id"]
        more = {"edit": f"edit?id={one}", "delete": f"delete?id={one}", "of-note": f"graph?id={one}"}
        deep = next(each["path"] for each in listed if "n" * 120 in each["path"])
        assert look(tour, "crowded", scheme, width, PAGES | notes | more | {"file": f"file?path={deep}"}) == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_commands_that_wait_look_right(chromium: Any, empty: Gateway, scheme: str, width: int) -> None:
    """A long one without blanks, one of many lines, and one of other scripts, for as many secrets as may be."""
    folder = "/" + "a-long-folder/" * 40
    secrets = [f"{'a-name-of-it-' * 8}{n} (sealed:{'k' * 60}:{'4f' * 16})" for n in range(32)]
    with touring(chromium, empty, color_scheme=scheme, viewport={"width": width, "height": 900}) as tour:
        for line in (UNBROKEN * 8, "psql -c '" + "select 1;\n" * 60 + "'", "🦊 漢字かな交じり文 שלום " * 20):
            is_whole = line.isascii()
            ask_for_use(tour, secrets=secrets, line=line, program=f"{folder}npm", folder=folder, whole=is_whole)
        assert look(tour, "waiting", scheme, width, {"uses": lambda tour: go_to_uses(tour, 3)}) == []
