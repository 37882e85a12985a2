"""The two pictures of docs/panel.md, from a memory of four weeks: a real daemon and gateway, whose wall clock is set from day to day.

    python -m tests.addons.panel.browser.pictures FOLDER

Takes what `make panel` does, a C compiler, and ImageMagick's `convert` for few colours, which keeps the files small.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import sync_playwright
from tests.addons.panel.browser.conftest import CHROMIUM
from tests.addons.panel.browser.test_panel_in_chromium import Tour, touring
from tests.support.programs.gateway import Gateway, serving
from tests.support.programs.processes import Machine, wait_until
from tests.support.programs.wall_clock import WallClock

SIZE: Final = {"width": 1100, "height": 690}
DAY_S: Final = 86_400
NOTES: Final = (
    (27, "Postgres, not MySQL", "We chose postgres over mysql for its row locks.", "decision"),
    (27, "Deploys", "A deploy goes to staging first, and to production when the checks of an hour are green.", "fact"),
    (25, "Money is whole cents", "Prices are whole cents everywhere; nothing is ever a float.", "decision"),
    (22, "Invoices", "Invoices are made by the worker at two in the morning, never by a request.", "fact"),
    (22, "Invoice numbers", "Invoice numbers have no gaps: they come from one row that is locked.", "decision"),
    (21, "Search", "The search of the shop is postgres' own; elasticsearch was too much to keep alive.", "decision"),
    (18, "Retries", "Payments are retried five times with growing waits, then somebody is called.", "fact"),
    (15, "Feature flags", "Flags live in one table; a flag that is older than a month is removed.", "preference"),
    (14, "Commit style", "Commits say why, in the present tense, without a number of an issue.", "preference"),
    (12, "Caching", "The catalogue is cached for a minute; prices are never cached.", "fact"),
    (9, "Migrations", "Migrations run before the deploy and must work with the code of before.", "decision"),
    (8, "Stock", "Stock is counted in the ledger; the number beside a product is a copy.", "fact"),
    (5, "Accessibility", "Each page is tried with the keyboard alone before it is merged.", "preference"),
    (3, "Logs", "Logs have ids and durations, no names and no addresses.", "decision"),
    (1, "Old importer", "The importer of 2019 is switched off on the first of December.", "fact"),
    (0, "How checkout locks", "Checkout locks the cart row, then the stock rows in order of id: no two wait for each other.", "decision"),
)  # fmt: skip
BY_HAND: Final = {
    26: "The shop has 40,000 products.",
    16: "Ask Mara about taxes.",
    7: "The warehouse closes at four on Fridays.",
}


def fill(gateway: Gateway, clock: WallClock) -> None:
    """What agents stored and a person wrote, each on its day."""
    days = sorted({day for day, *_ in NOTES} | set(BY_HAND), reverse=True)
    clock.jump(-days[0] * DAY_S)
    token = gateway.token("agents", "--scope", "write", "--trusted")
    for day in days:
        clock.jump(-day * DAY_S)
        for of, title, content, type_ in NOTES:
            if of == day:
                note = {"title": title, "content": content, "type": type_, "tags": ["shop"]}
                answer = gateway.request("POST", "/api/memories", note, token=token)
                assert answer.status < 300, answer.body
        if day in BY_HAND:
            write(gateway.machine, f"memory/by-hand-{day}.md", BY_HAND[day])
    gateway.machine.run("task", "add", "Review what was merged today.", "--schedule", "30 2 * * 1-5")


def write(machine: Machine, path: str, text: str) -> None:
    """As a person does, in a file."""
    machine.write(path, text)
    wait_until(path, lambda: path in [each["path"] for each in machine.json("ls", "--limit", "9")["documents"]])


def shoot(chromium: Any, gateway: Gateway, folder: Path) -> None:
    with touring(chromium, gateway, color_scheme="light", viewport=SIZE) as tour:
        tour.search("why do we lock rows")
        tour.page.locator("main details summary:has-text('Why')").first.click()
        taken(tour, folder / "panel-search.png")
    with touring(chromium, gateway, color_scheme="dark", viewport=SIZE) as tour:
        tour.go("timeline")
        taken(tour, folder / "panel-timeline.png")


def taken(tour: Tour, path: Path) -> None:
    tour.page.screenshot(path=path)
    subprocess.run(["convert", path, "-strip", "+dither", "-colors", "64", f"png8:{path}"], check=True, timeout=60)
    print(f"{path}: {path.stat().st_size:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.addons.panel.browser.pictures", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    with tempfile.TemporaryDirectory() as root, sync_playwright() as playwright:
        machine, clock = Machine(Path(root), "ann", has_model=True), WallClock(Path(root), "ann")
        machine.env |= clock.env
        clock.jump(-28 * DAY_S)
        machine.write("MEMORY.md", "# Facts\n\nThe shop is written in Elixir.\n")
        try:
            with serving(machine) as gateway:
                wait_until("the first file", lambda: machine.json("ls")["documents"])
                fill(gateway, clock)
                wait_until("all vectors", lambda: machine.json("status")["queuedChunks"] == 0)
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
                shoot(browser, gateway, folder)
                browser.close()
        finally:
            machine.stop_local_daemon()


if __name__ == "__main__":
    main()
