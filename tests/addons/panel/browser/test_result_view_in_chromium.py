"""The page beside results in Chromium, in a host made of the reference implementation from npm: what a person sees and decides there."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.addons.panel.browser.conftest import AXE, EVIL
from tests.support.deadline import DEADLINE_S
from tests.support.programs.door_attacks import ACCEPTS, ENVELOPE
from tests.support.programs.gateway import Door, Gateway, serving
from tests.support.programs.processes import Machine, wait_until
from tests.support.programs.server_gateway import ServerGateway, served

from confide_memory.documents import has_clash, marked_clash

POLICY = "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; connect-src 'self'; frame-src 'self'"
"""What the specification has a host allow for a page that asks for no host."""
PASSED = ("accept", "content-type", "mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name")
MODULES = AXE.parent.parent
ESBUILD = MODULES / ".bin/esbuild"
LEARNED = {"id": "3f9a2c1b", "text": "Run mix format before each commit.", "quote": "", "kind": "preference", "at": 1}

pytestmark = pytest.mark.skipif(not ESBUILD.is_file(), reason="there is no esbuild here: npm brings it")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The host's script with all that it imports."""
    made = tmp_path_factory.mktemp("host") / "host.js"
    source = Path(__file__).with_name("host.js")
    command = [str(ESBUILD), str(source), "--bundle", "--format=iife", f"--outfile={made}", "--log-level=error"]
    subprocess.run(command, check=True, timeout=DEADLINE_S, env={**os.environ, "NODE_PATH": str(MODULES)})
    return made.read_bytes()


@pytest.fixture
def learning(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway whose memory has a hostile note, a conflict, and a suggestion that waits."""
    machine = Machine(tmp_path, "ann")
    (machine.home / "proxy.toml").write_text('[learn]\nmode = "suggest"\n')
    clash = marked_clash(
        ["We deploy on Mondays.\n"], ["We deploy on Tuesdays.\n"], ("ann, revision 1", "bob, revision 2")
    )
    machine.write("memory/deploys.md", "".join(["# Deploys\n", *clash]))
    machine.write("memory/otters.md", f"# Otters <b>and</b> rafts\n\nOtters hold hands. {EVIL}\n")
    learn = machine.home / "proxy/learn"
    learn.mkdir(mode=0o700, parents=True)
    place = {
        "project": "project",
        "folder": str(machine.project),
        "session": "s",
        "client": "claude-code",
        "judge": "rules",
    }
    (learn / "suggestions.json").write_text(json.dumps([{**LEARNED, **place}]))
    try:
        with serving(machine) as gateway:
            wait_until("the files", lambda: len(machine.json("ls")["documents"]) == 2)
            yield gateway
    finally:
        machine.stop_local_daemon()


@contextmanager
def showing(door: Door, host: bytes, token: str) -> Iterator[str]:
    """The host's page, and the way to the gateway beside it: the gateway refuses pages of other origins."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/mcp":
                self._respond(405, {}, b"")
            elif self.path == "/host.js":
                self._respond(200, {"Content-Type": "text/javascript"}, host)
            else:
                page = b'<!doctype html><title>Host</title><body><script src="/host.js"></script>'
                self._respond(200, {"Content-Type": "text/html", "Content-Security-Policy": POLICY}, page)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            sent = {name: value for name, value in self.headers.items() if name.lower() in PASSED}
            answer = door.request("POST", "/mcp", body, token=token, headers=sent)
            kept = ("content-type", "mcp-session-id")
            self._respond(
                answer.status, {name: answer.headers[name] for name in kept if name in answer.headers}, answer.body
            )

        def _respond(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def shot(page: Any, name: str) -> None:
    if folder := os.environ.get("CONFIDE_SHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


@pytest.fixture
def site(learning: Gateway, host: bytes) -> Iterator[str]:
    with showing(learning, host, learning.token("host", "--scope", "write", "--trusted")) as found:
        yield found


def test_a_person_reads_and_decides(learning: Gateway, site: str, chromium: Any) -> None:
    """Results as text whatever they say, a search, a conflict and a suggestion decided; no request leaves the page."""
    page = chromium.new_page(viewport={"width": 760, "height": 900})
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on(
        "console",
        lambda message: said.append(message.text) if message.type == "error" and "405" not in message.text else None,
    )
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(site)
    policy = page.evaluate("showTool('memory_search', {query: 'how do otters sleep'}, 'dark')")
    assert policy == {f"{kind}Domains": [] for kind in ("connect", "resource", "frame", "baseUri")}
    view = page.frame_locator("iframe")
    hit = view.locator("#found li", has_text="Otters hold hands")
    hit.wait_for()
    assert "<b>and</b>" in hit.locator("h3").inner_text()
    assert "<script>alert(1)</script>" in hit.locator(".snippet").inner_text()
    assert "⟨U+202E⟩" in hit.locator(".snippet").inner_text()
    assert hit.locator("a, img, script, b").count() == 0
    assert hit.locator(".class.untrusted").count() == 1
    assert view.locator("#q").input_value() == "how do otters sleep"
    shot(page, "view-search")

    view.locator("#q").fill("when do we deploy")
    view.locator("#q").press("Enter")
    view.locator("#found li", has_text="We deploy on").first.wait_for()
    view.locator("#look").click()
    view.get_by_text("Run mix format before each commit.").wait_for()
    shot(page, "view-decisions")
    view.get_by_role("button", name="Keep the second version").click()
    view.get_by_text("Done.").wait_for()
    assert not has_clash((learning.machine.project / "memory/deploys.md").read_text())
    view.get_by_role("button", name="Keep it as a note").click()
    view.get_by_text("Nothing waits for you here.").wait_for()
    assert any("mix format" in each["title"] for each in learning.machine.json("ls")["documents"])

    page.evaluate("showTool('memory_status', {}, 'light')")
    view.get_by_text("The memory has 3 files.").wait_for()
    shot(page, "view-status")
    assert {url for url in asked if not url.startswith(("about:", site))} == set()
    assert said == []
    page.close()


def test_a_client_that_may_not_decide_shows_results(learning: Gateway, host: bytes, chromium: Any) -> None:
    page = chromium.new_page()
    with showing(learning, host, learning.token("reader")) as site:
        page.goto(site)
        page.evaluate("showTool('memory_status', {}, 'light')")
        view = page.frame_locator("iframe")
        view.get_by_text("1 file in conflict: memory/deploys.md").wait_for()
        view.get_by_text("What waits for you is in the panel").wait_for()
    page.close()


def store(gateway: ServerGateway, token: str, **given: str) -> None:
    params = {"name": "memory_store", "arguments": given, "_meta": ENVELOPE}
    headers = {**ACCEPTS, "Mcp-Method": "tools/call", "Mcp-Name": "memory_store"}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = gateway.request("POST", "/mcp", message, token=token, headers=headers)
    assert not answer.json["result"].get("isError"), answer.body


def test_the_daemons_own_gateway_shows_results(tmp_path: Path, host: bytes, chromium: Any) -> None:
    """A search, a further one in the page, and conflicts; a decision needs a device, and the page says so."""
    gateway = served(tmp_path / "home")
    page = chromium.new_page()
    try:
        token = gateway.token("host", "--scope", "write", "--trusted")
        with showing(gateway, host, token) as site:
            page.goto(site)
            clash = marked_clash(["Mondays.\n"], ["Tuesdays.\n"], ("ann, revision 1", "bob, revision 2"))
            for path, text in (("otters", f"Otters hold hands. {EVIL}"), ("deploys", "".join(["# Deploys\n", *clash]))):
                store(gateway, token, content=text, path=f"memory/{path}.md", project="zoo")
            policy = page.evaluate("showTool('memory_search', {query: 'how do otters sleep'}, 'dark')")
            assert policy == {f"{kind}Domains": [] for kind in ("connect", "resource", "frame", "baseUri")}
            view = page.frame_locator("iframe")
            hit = view.locator("#found li", has_text="Otters hold hands")
            hit.wait_for()
            assert hit.locator("a, img, script").count() == 0
            view.locator("#q").fill("when do we deploy")
            view.locator("#q").press("Enter")
            view.locator("#found li", has_text="Mondays").first.wait_for()
            page.evaluate("showTool('memory_status', {}, 'light')")
            view.get_by_text("1 file in conflict: memory/deploys.md").wait_for()
            view.get_by_text("What waits for you is in the panel").wait_for()
    finally:
        page.close()
        gateway.confided.end()
