"""The panel in a real browser, for `make panel`: Debian's Chromium, driven by Playwright's package, with axe-core looking at every page."""

from __future__ import annotations

import base64
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.programs.gateway import Gateway, serving
from tests.support.programs.processes import Machine, wait_until

from confide_daemon.access.registry import open_state
from confide_daemon.datadir.paths import DataFolder
from confide_http.server.access import server_tokens
from confide_http.server.access.applications import Applications
from confide_http.server.access.sign_ins import AuthorizationRequest, SignIns, words_of
from confide_memory.documents import marked_clash

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
AXE = Path(os.environ.get("CONFIDE_AXE", ""))
SECRET = "ghp_R4tZq8LmVx2Kc7WnYb5Jd9Hs3Fg6PaQe1TuX"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
RICH = (
    "# The roof\n\nSee [[wall]] and [[Nowhere]].\n\n> [!warning] Slippery\n> After rain.\n\n## Tiles\n\n![[plan.png]]\n\n"
    "### Slate\n\n- [x] laid\n\n#### Green\n\nText.\n"
)
EVIL = (
    "<script>alert(1)</script> <img src=x onerror=alert(2)> [run](javascript:alert(3)) \u202egnp.exe\u202c\n\n"
    "![p](https://evil.example/p.png) [out](https://example.org/)\n"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what is not there, and says what."""
    why = ""
    if not os.environ.get("CONFIDE_PANEL"):
        why = "make panel runs it"
    elif CHROMIUM is None:
        why = "there is no Chromium here"
    elif not AXE.is_file():
        why = "there is no axe-core here: npm brings it"
    here = str(Path(__file__).parent)
    for item in items:
        if why and str(item.path).startswith(here):
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One whose memory has something for every page."""
    machine = Machine(tmp_path_factory.mktemp("panel"), "ann")
    machine.write(
        "MEMORY.md", "# Facts\n\nThe shop is written in **Elixir**.\n\n| port | what |\n|---|---|\n| 4000 | web |\n"
    )
    machine.write("memory/house/roof.md", RICH)
    machine.write("memory/house/wall.md", "# The wall\n\nIt carries the [[roof]].\n")
    machine.write("memory/ports.md", "".join(["# Ports\n\n", *marked_clash(["4000\n"], ["4001\n"], ("ann", "bob"))]))
    (machine.project / "memory/house/plan.png").write_bytes(PIXEL)
    _fill_state(machine)
    try:
        with serving(machine) as found:
            wait_until("the first file", lambda: machine.json("ls")["documents"])
            _fill(machine)
            _relate(found)
            _let_in(machine)
            yield found
    finally:
        machine.stop_local_daemon()


def _fill_state(machine: Machine) -> None:
    hooks = machine.home / "proxy/hooks"
    hooks.mkdir(parents=True, mode=0o700)
    now = int(time.time())
    (hooks / "events").write_text("".join(f"{now - 60 * n} prompt answered {20 + n} -\n" for n in range(40)))
    learn = machine.home / "proxy/learn"
    learn.mkdir(mode=0o700)
    rest = {"quote": "we run mix format", "kind": "preference", "project": "project", "folder": str(machine.project)}
    rest |= {"session": "s", "client": "claude-code", "judge": "rules"}
    kept = [{"id": "3f9a2c1b", "text": "Run mix format before each commit.", "at": now - 7200, **rest}]
    (learn / "suggestions.json").write_text(json.dumps(kept))


def _fill(machine: Machine) -> None:
    for text, title in (
        ("We chose postgres over mysql for its row locks.", "Postgres, not MySQL"),
        (f"The token of staging is {SECRET}.", "Staging access"),
        (EVIL, "Evil <b>note</b>"),
    ):
        machine.run("store", text, "--title", title, "--type", "decision", "--tag", "db")
    machine.run("store", "The dam is old.", "--path", "memory/dam.md")
    machine.run("store", "The dam is new.", "--path", "memory/dam.md")
    machine.run("store", "Soon gone.", "--path", "memory/gone.md")
    machine.run("rm", "memory/gone.md", "--yes")
    machine.run("store", "Nobody may know.", "--path", "memory/forgotten.md")
    machine.run("forget", "memory/forgotten.md", "--yes")
    machine.run("token", "new", "editor", "--scope", "write")
    machine.run("task", "add", "Review what was merged today.\n\nSay what could break.", "--schedule", "30 2 * * 1-5")
    machine.run("search", "postgres")


def _relate(gateway: Gateway) -> None:
    """Two notes that hang together."""
    notes = {each["title"]: each["id"] for each in gateway.machine.json("ls")["documents"] if each["id"]}
    one, other = notes["Staging access"], notes["Postgres, not MySQL"]
    body = {"relatedId": other, "relation": "depends_on"}
    token = gateway.token("relates", "--scope", "write", "--trusted")
    assert gateway.request("POST", f"/api/memories/{one}/links", body, token=token).status == 200


def _let_in(machine: Machine) -> None:
    """A program that comes by the daemon's gateway."""
    with closing(open_state(DataFolder(machine.home / "daemon"))) as state:
        (space,) = state.registry.spaces()
        server_tokens.allow(
            state.registry, "chat", space=space, scope="write", projects=(), days=90, gateway="untrusted"
        )


def asks_to_sign_in(machine: Machine) -> str:
    """The six words of a program that asks to be let in."""
    redirect = "https://chat.example/callback"
    with closing(open_state(DataFolder(machine.home / "daemon"))) as state:
        (space,) = state.registry.spaces()
        program = Applications(state.registry).add("Chat", space=space, redirects=[redirect], is_registered=True)
        asked = AuthorizationRequest(redirect, True, None, "write", "C" * 43, "https://memory.example.org/mcp")
        return words_of(SignIns(state.registry).ask(program, asked))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # As root, as in most containers, Chromium has no sandbox.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        # For pages of another name than this machine's own (test_frames_in_chromium).
        arguments.append("--host-resolver-rules=MAP *.example 127.0.0.1")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()
