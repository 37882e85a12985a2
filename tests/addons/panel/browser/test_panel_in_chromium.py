"""Every page, in both colour schemes and at two widths, with and without script, by keyboard alone; and what a page may not do."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.addons.panel.browser.conftest import AXE, SECRET, asks_to_sign_in
from tests.support.programs.gateway import Gateway
from tests.support.programs.panel import link

from confide_proxy.hooks.hook_process import connect

SHOTS = os.environ.get("CONFIDE_SHOTS", "")
"""A folder for pictures of all pages, for whoever looks at them."""
WIDTHS = (1280, 320)
SCHEMES = ("light", "dark")


@dataclass
class Tour:
    """A page of Chromium that has come in; `wrong` has what must not happen: dialogs, requests elsewhere, what the policy stopped."""

    gateway: Gateway
    page: Any
    base: str
    wrong: list[str] = field(default_factory=list)
    held: list[Any] = field(default_factory=list)
    """What has to stay open while the page is looked at."""

    def go(self, path: str) -> None:
        self.page.goto(f"{self.base}/{path}", wait_until="load")
        # The page of health comes again by itself until it is whole.
        self.page.locator("td:has-text('is on its way')").first.wait_for(state="detached", timeout=60_000)

    def search(self, query: str) -> None:
        self.go("")
        self.page.fill("#q", query)
        with self.page.expect_navigation():
            self.page.keyboard.press("Enter")

    def open_note(self, title: str) -> None:
        self.go("project")
        with self.page.expect_navigation():
            self.page.click(f"td a:has-text({title!r})")


@contextmanager
def touring(chromium: Any, gateway: Gateway, **options: Any) -> Iterator[Tour]:
    context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    page = context.new_page()
    wrong: list[str] = []
    page.on("dialog", lambda dialog: (wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: None if asked.url.startswith(gateway.url) else wrong.append(asked.url))
    page.goto(link(gateway))
    page.wait_for_url(re.compile(r"/panel/[\w-]+/$"))
    tour = Tour(gateway, page, page.url.rstrip("/"), wrong)
    try:
        yield tour
    finally:
        context.close()
        for each in tour.held:
            each.close()
    assert wrong == []


def asked(tour: Tour) -> None:
    tour.go("")
    tour.page.click(".big summary")
    tour.page.fill("#prompt", "Why did we choose postgres, what about its row locks?")
    with tour.page.expect_navigation():
        tour.page.click(".big button")


def conflict(tour: Tour) -> None:
    tour.go("edit?path=memory/dam.md")
    # As if somebody had been faster.
    tour.page.eval_on_selector("[name=revision]", "field => { field.value = '1' }")
    tour.page.fill("#text", "The dam is mine.")
    with tour.page.expect_navigation():
        tour.page.click("main button:has-text('Save')")


def preview(tour: Tour) -> None:
    tour.go("remember")
    tour.page.fill("#text", f"The key is {SECRET}.")
    with tour.page.expect_navigation():
        tour.page.click("main button")


def sealed(tour: Tour) -> None:
    tour.open_note("Staging access")
    with tour.page.expect_navigation():
        tour.page.click("a.sealed")


def shown(tour: Tour) -> None:
    sealed(tour)
    with tour.page.expect_navigation():
        tour.page.click("main button")


def invited(tour: Tour) -> None:
    tour.go("devices")
    tour.page.fill("#name", "phone")
    with tour.page.expect_navigation():
        tour.page.click("button:has-text('Make an invite')")


def asked_by_a_program(tour: Tour) -> None:
    tour.go("devices")
    for summary in tour.page.query_selector_all("main details > summary"):
        summary.click()
    tour.page.fill("#program-words", asks_to_sign_in(tour.gateway.machine))
    with tour.page.expect_navigation():
        tour.page.click("button:has-text('Show the request')")


def tokened(tour: Tour) -> None:
    tour.go("devices")
    for summary in tour.page.query_selector_all("main details > summary"):
        summary.click()
    tour.page.fill("#token-name", f"lens-{os.urandom(3).hex()}")
    with tour.page.expect_navigation():
        tour.page.click("button:has-text('Make the token')")


def tasked(tour: Tour) -> None:
    tour.go("tasks")
    with tour.page.expect_navigation():
        tour.page.click("td a:has-text('Review')")


def receipt(tour: Tour) -> None:
    (kept,) = (tour.gateway.machine.home / "proxy/forget-receipts").iterdir()
    tour.go(f"forgotten?id={kept.stem}")


def ask_for_use(tour: Tour, **asked: object) -> None:
    """Have a command wait before it uses secrets, for as long as the tour lasts."""
    (folder,) = (tour.gateway.machine.home / "proxy/gateway/uses").iterdir()
    connection = connect(str(folder), 5)
    assert connection is not None
    connection.sendall(json.dumps(asked).encode() + b"\n")
    tour.held.append(connection)


def waits(tour: Tour) -> None:
    """A command that waits before it uses a secret; where commands wait, other pages say so."""
    ask_for_use(
        tour,
        secrets=[f"npm-token (sealed:npm-token:{'4f' * 16})"],
        line="npm publish --access public",
        program="/usr/bin/npm",
        folder=str(tour.gateway.machine.project),
    )
    go_to_uses(tour, 1)


def go_to_uses(tour: Tour, count: int) -> None:
    """Go to the page of uses, once so many wait."""
    tour.go("uses")
    while tour.page.locator("main article").count() < count:
        tour.go("uses")


def answered(tour: Tour) -> None:
    """What the page says after an answer."""
    waits(tour)
    with tour.page.expect_navigation():
        tour.page.click("button:has-text('Allow once')")


PAGES: dict[str, Any] = {
    "search": "",
    "hits": lambda tour: tour.search("why postgres"),
    "prompt": asked,
    "note": lambda tour: tour.open_note("Postgres, not MySQL"),
    "evil": lambda tour: tour.open_note("Evil"),
    "file": "file?path=MEMORY.md",
    "rich": "file?path=memory/house/roof.md",
    "folder": "project?folder=memory/house&sort=path",
    "conflicts": "conflicts",
    "stale": "stale",
    "secrets": "secrets",
    "graph of a file": "graph?path=memory/house/roof.md",
    "changes": "changes?path=memory/dam.md&to=2",
    "edit": "edit?path=memory/dam.md",
    "conflict": conflict,
    "delete": "delete?path=memory/dam.md",
    "deleted": "deleted",
    "forget": "forget?path=memory/dam.md",
    "receipt": receipt,
    "uses": "uses",
    "waits": waits,
    "told that one waits": "projects",
    "answered": answered,
    "sealed": sealed,
    "shown": shown,
    "remember": "remember",
    "preview": preview,
    "projects": "projects",
    "project": "project",
    "entities": "entities",
    "graph": "graph",
    "timeline": "timeline",
    "day": "day?day=2026-11-25",
    "learned": "learned",
    "usage": "usage",
    "tasks": "tasks",
    "task": tasked,
    "devices": "devices",
    "invited": invited,
    "program": asked_by_a_program,
    "tokened": tokened,
    "health": "health",
    "missing": "nothing",
}


CUT_OFF = "[...document.querySelectorAll('pre.wrap')].some(one => one.scrollWidth > one.clientWidth)"
"""Whether of a text that is to be read or copied whole, such as an invite, a part is out of sight."""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_axe_finds_nothing(chromium: Any, gateway: Gateway, scheme: str, width: int) -> None:
    """Of any impact; nothing is wider than the window, what is shown once is whole, and the policy had nothing to stop."""
    found: list[str] = []
    with touring(chromium, gateway, color_scheme=scheme, viewport={"width": width, "height": 900}) as tour:
        for name, way in PAGES.items():
            if callable(way):
                way(tour)
            else:
                tour.go(way)
            for summary in tour.page.query_selector_all("main details:not([open]) > summary"):
                summary.click()
            # By the debugger, which no policy of a page binds.
            tour.page.evaluate(AXE.read_text(encoding="utf-8"))
            result = tour.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            found += [f"{name}: {each['id']} {each['nodes'][0]['html'][:120]}" for each in result["violations"]]
            if tour.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
                found.append(f"{name}: wider than {width}")
            if tour.page.evaluate(CUT_OFF):
                found.append(f"{name}: cut off at {width}")
            if SHOTS:
                tour.page.screenshot(path=Path(SHOTS) / f"{name}-{scheme}-{width}.png", full_page=True)
        tour.page.goto(gateway.url)
        tour.page.evaluate(AXE.read_text(encoding="utf-8"))
        result = tour.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        found += [f"enter: {each['id']}" for each in result["violations"]]
    assert found == []


def test_every_page_is_whole_without_script(chromium: Any, gateway: Gateway) -> None:
    with (
        touring(chromium, gateway) as scripted,
        touring(chromium, gateway, java_script_enabled=False) as plain,
    ):
        for name, way in PAGES.items():
            if callable(way):
                continue
            told = []
            for tour in (scripted, plain):
                tour.go(way)
                text = tour.page.inner_text("main")
                # Recalls are counted a moment after they happen, such as those of the pages before this one.
                counts = r"\d+" if name == "timeline" else r"\d+ (minute|second)s?( ago)?|just now"
                told.append(re.sub(counts, "", text))
            if name != "health":  # it counts browsers and streams
                assert told[0] == told[1], name
        plain.search("why postgres")
        assert "row locks" in plain.page.inner_text("main")
        with plain.page.expect_navigation():
            plain.page.click("ol.list h3 a")
        with plain.page.expect_navigation():
            plain.page.click("text=Edit")
        plain.page.fill("#text", "We chose postgres over mysql for its row locks, in 2024.")
        with plain.page.expect_navigation():
            plain.page.click("main button:has-text('Save')")
        assert "Saved as revision" in plain.page.inner_text("[role=status]")


def test_the_whole_tour_by_keyboard(chromium: Any, gateway: Gateway) -> None:
    """Everything that can be clicked is reached by Tab, in the order of the page, and is seen where it stands; `/` searches."""
    with touring(chromium, gateway) as tour:
        page = tour.page
        for name, way in PAGES.items():
            if callable(way):
                continue
            tour.go(way)
            wanted = page.evaluate(
                "[...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex=\"0\"]')]"
                ".filter(each => each.checkVisibility() && each.getBoundingClientRect().width).length"
            )
            seen = set()
            for _ in range(wanted + 5):
                page.keyboard.press("Tab")
                at = page.evaluate(
                    "(() => { const at = document.activeElement; if (at === document.body) return null;"
                    " const all = [...document.querySelectorAll('*')]; const style = getComputedStyle(at);"
                    " const ring = at.matches('a *') ? 'x' : style.outlineStyle;"
                    " return [all.indexOf(at), ring, at.outerHTML.slice(0, 90)] })()"
                )
                if at is None or at[0] in seen:
                    break
                assert at[1] != "none", (name, at[2])
                seen.add(at[0])
            assert len(seen) >= wanted, (name, len(seen), wanted)
        tour.go("projects")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        with page.expect_navigation():
            page.keyboard.press("/")
        page.wait_for_function("document.activeElement.id === 'q'")
        page.keyboard.type("why postgres")
        with page.expect_navigation():
            page.keyboard.press("Enter")
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.closest('ol.list h3') !== null"):
                break
        with page.expect_navigation():
            page.keyboard.press("Enter")
        assert "row locks" in page.inner_text("article")


def test_a_hostile_note_does_nothing(chromium: Any, gateway: Gateway) -> None:
    """No dialog, no request elsewhere, nothing for the policy to stop; a link of it leads out without saying from where."""
    with touring(chromium, gateway) as tour:
        tour.open_note("Evil")
        assert tour.page.query_selector_all("article script, article img, article [onerror]") == []
        assert "<script>alert(1)</script>" in tour.page.inner_text("article")
        links = tour.page.eval_on_selector_all("article a[href]", "all => all.map(each => [each.href, each.rel])")
        assert [href for href, _ in links] == ["https://evil.example/p.png", "https://example.org/"]
        assert all("noreferrer" in rel for _, rel in links)


def test_a_picture_of_the_memory_is_seen(chromium: Any, gateway: Gateway) -> None:
    """It comes from this device; a picture of the web is a link. Headings are larger than the text below them."""
    with touring(chromium, gateway) as tour:
        tour.go("file?path=memory/house/roof.md")
        assert tour.page.eval_on_selector_all("article img", "all => all.map(each => each.naturalWidth)") == [1]
        sizes = tour.page.eval_on_selector_all(
            "article h3, article h4, article h5, article h6, article p",
            "all => all.map(each => [each.localName, parseFloat(getComputedStyle(each).fontSize)])",
        )
        largest_text = max(size for name, size in sizes if name == "p")
        headings = [size for name, size in sizes if name != "p"]
        assert len(headings) == 4
        assert headings == sorted(headings, reverse=True)
        assert min(headings) > largest_text


@pytest.mark.parametrize("scheme", SCHEMES)
def test_colour_is_for_what_is_added_automatically(chromium: Any, gateway: Gateway, scheme: str) -> None:
    """The class of an untrusted note is as grey as the text around it, and has no ground of its own."""
    with touring(chromium, gateway, color_scheme=scheme) as tour:
        tour.go("")
        style = "each => [getComputedStyle(each).color, getComputedStyle(each).backgroundColor]"
        grey = tour.page.eval_on_selector(".meta", style)[0]
        untrusted = tour.page.eval_on_selector(".class.untrusted", style)
        trusted = tour.page.eval_on_selector(".class.agent", style)
        assert untrusted == [grey, "rgba(0, 0, 0, 0)"]
        assert trusted[0] != grey
        assert trusted[1] != "rgba(0, 0, 0, 0)"


def test_an_invite_is_copied_by_its_button(chromium: Any, gateway: Gateway) -> None:
    """Where a browser refuses the clipboard, the button selects the text. Without a script one click does."""
    with touring(chromium, gateway, permissions=["clipboard-read", "clipboard-write"]) as tour:
        invited(tour)
        text = tour.page.inner_text("#invite-text")
        tour.page.click("[data-copies=invite-text]")
        tour.page.wait_for_selector("text=Copied")
        assert tour.page.evaluate("navigator.clipboard.readText()") == text
    with touring(chromium, gateway) as tour:
        invited(tour)
        tour.page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('refused')); }")
        tour.page.click("[data-copies=invite-text]")
        tour.page.wait_for_selector("text=Selected")
        assert tour.page.evaluate("getSelection().toString()") == tour.page.inner_text("#invite-text")
    with touring(chromium, gateway, java_script_enabled=False) as tour:
        invited(tour)
        assert not tour.page.is_visible("[data-copies]")
        assert tour.page.is_visible("svg.qr")
        style = "each => getComputedStyle(each).userSelect"
        assert tour.page.eval_on_selector("#invite-text", style) == "all"


def test_what_is_sealed_closes_by_itself(chromium: Any, gateway: Gateway) -> None:
    with touring(chromium, gateway) as tour:
        shown(tour)
        assert SECRET in tour.page.inner_text("main")
        tour.page.wait_for_url(re.compile(r"/note/"), timeout=60_000)
        assert SECRET not in tour.page.content()


def test_an_open_page_follows_what_is_stored(chromium: Any, gateway: Gateway) -> None:
    with touring(chromium, gateway) as tour:
        tour.go("")
        tour.page.wait_for_timeout(100)
        gateway.machine.run("store", "The heron came back.", "--title", "Heron")
        tour.page.wait_for_selector("text=Heron", timeout=30_000)


def test_the_link_is_opened_by_a_file(chromium: Any, gateway: Gateway, tmp_path: Path) -> None:
    """As `confide panel` does it: no list of processes has the link. Another page gets nothing by leading there."""
    file = tmp_path / "panel.html"
    file.write_text(f'<meta http-equiv="refresh" content="0; url={link(gateway)}">')
    context = chromium.new_context()
    page = context.new_page()
    page.goto(file.as_uri())
    page.wait_for_url(re.compile(r"/panel/[\w-]+/$"))
    base = page.url
    file.write_text(f'<meta http-equiv="refresh" content="0; url={base}">')
    page.goto(file.as_uri())
    page.wait_for_selector("text=other sites")
    context.close()
