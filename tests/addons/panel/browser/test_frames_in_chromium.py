"""Another program's page that shows the panel in a frame: one that was named does, whatever its site; others get nothing."""

from __future__ import annotations

import html
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.support.network.reverse_proxies import Authority
from tests.support.programs.gateway import Gateway, serving
from tests.support.programs.panel import link
from tests.support.programs.processes import Machine, wait_until

NAME = "board.example"
"""Leads to this machine, in the browser of these tests (`conftest.chromium`)."""

SAME = "localhost in both"


class Board:
    """A program whose page has one frame."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.shows = ""

    def page(self) -> bytes:
        frame = f'<iframe src="{html.escape(self.shows)}" width="900" height="700"></iframe>' if self.shows else ""
        return f"<!doctype html><title>Board</title>{frame}".encode()


@contextmanager
def board(authority: Authority | None = None) -> Iterator[Board]:
    """One that listens on all of this machine's names; with an authority by https."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = found.page()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if authority is not None:
        server.socket = authority.context.wrap_socket(server.socket, server_side=True)
    found = Board(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Board]]:
    authority = Authority(tmp_path_factory.mktemp("boards") / "ca", NAME)
    with board() as plain, board(authority) as tls, board() as foreign:
        yield {"plain": plain, "tls": tls, "foreign": foreign}


@pytest.fixture(scope="module")
def framed(tmp_path_factory: pytest.TempPathFactory, boards: dict[str, Board]) -> Iterator[Gateway]:
    """A gateway whose panel the pages of two of the boards may show."""
    machine = Machine(tmp_path_factory.mktemp("framed"), "ann")
    machine.write("MEMORY.md", "# Facts\n\nThe shop is written in Elixir.\n")
    plain, tls = boards["plain"].port, boards["tls"].port
    named = [f"http://127.0.0.1:{plain}", f"http://localhost:{plain}", f"https://{NAME}:{tls}"]
    (machine.home / "proxy.toml").write_text(f"[panel]\nframe_ancestors = {named}\n")
    try:
        with serving(machine) as found:
            wait_until("the first file", lambda: machine.json("ls")["documents"])
            yield found
    finally:
        machine.stop_local_daemon()


@contextmanager
def looking(chromium: Any) -> Iterator[tuple[Any, list[str]]]:
    context = chromium.new_context(ignore_https_errors=True)
    page, said = context.new_page(), list[str]()
    page.on("console", lambda message: said.append(message.text))
    try:
        yield page, said
    finally:
        context.close()


@pytest.mark.parametrize("origin", ["http://127.0.0.1", "http://localhost", f"https://{NAME}", SAME])
def test_a_page_that_was_named_shows_it(chromium: Any, framed: Gateway, boards: dict[str, Board], origin: str) -> None:
    """Of the same site and of another: the link lets in, pages follow each other, a form is taken, news arrive; and leaving it ends it."""
    shown = boards["tls" if origin.startswith("https") else "plain"]
    shown.shows = link(framed)
    if (named := origin.rpartition("/")[2]) == SAME:  # as the page says it: then both are one site
        shown.shows, origin = shown.shows.replace("127.0.0.1", "localhost"), "http://localhost"
    with looking(chromium) as (page, said):
        page.goto(f"{origin}:{shown.port}/")
        frame = page.frame_locator("iframe")
        frame.locator("#q").fill("where is the elixir")
        frame.locator("#q").press("Enter")
        frame.locator("text=MEMORY.md:1").wait_for()
        frame.locator("text=Timeline").click()
        frame.locator("h1:has-text('Timeline')").wait_for()
        frame.locator("text=Remember >> nth=0").click()
        frame.locator("#text").fill(f"A framed fact of {named}.")
        with page.expect_response(lambda answer: answer.url.endswith("/news")) as news:
            frame.locator("main button").click()
            frame.locator("text=Remembered in").wait_for()
        assert news.value.status == 200
        frame.locator("text=Leave the panel").click()
        frame.locator("text=confide panel").first.wait_for()
        assert not [each for each in said if "Content Security Policy" in each]
        # What the frame was given stays in the frame: the page around it reads none of it.
        assert (
            page.evaluate("(() => { try { return frames[0].document.body.innerText } catch { return null } })()")
            is None
        )
    assert "A framed fact" in framed.machine.run("search", "framed fact")


@pytest.mark.parametrize("origin", ["http://127.0.0.1", "http://localhost", f"http://{NAME}"])
def test_a_page_that_was_not_named_shows_nothing(
    chromium: Any, framed: Gateway, boards: dict[str, Board], origin: str
) -> None:
    """The policy stops the frame, even where the page knows a link that is good."""
    foreign = boards["foreign"]
    foreign.shows = link(framed)
    with looking(chromium) as (page, said):
        page.goto(f"{origin}:{foreign.port}/")
        wait_until("the policy", lambda: page.evaluate("1") and any("frame-ancestors" in each for each in said))
        assert page.frame_locator("iframe").locator("nav").count() == 0


def test_where_none_was_named_a_link_is_not_used_up(chromium: Any, gateway: Gateway, boards: dict[str, Board]) -> None:
    foreign = boards["foreign"]
    foreign.shows = address = link(gateway)
    with looking(chromium) as (page, _):
        with page.expect_response(address) as answer:
            page.goto(f"http://127.0.0.1:{foreign.port}/")
        assert answer.value.status == 403
        page.goto(address)
        page.wait_for_selector("#q")


def test_a_visit_of_its_own_is_in_no_frame(chromium: Any, framed: Gateway, boards: dict[str, Board]) -> None:
    """A page that knows where a visit is, and may show the panel, still has no cookie of it."""
    plain = boards["plain"]
    with looking(chromium) as (page, _):
        page.goto(link(framed))
        page.wait_for_selector("#q")
        plain.shows = page.url
        with page.expect_response(plain.shows) as answer:
            page.goto(f"http://localhost:{plain.port}/")
        assert answer.value.status == 403
