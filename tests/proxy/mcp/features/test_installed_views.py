"""Pages beside results, by MCP's extension for apps: what a client that declares it sees, and that no other client sees any of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.scripted import CALL, Client, Message, running
from tests.support.programs.wire import OPENING

from confide_memory.errors import AddonError
from confide_memory.tools.result_views import EXTENSION, MEDIA_TYPE, NONE, ResultView, ResultViews
from confide_proxy import addons
from confide_proxy.mcp import catalogue
from confide_proxy.mcp.features import installed_views

VERSION = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
SHOWS = {"extensions": {EXTENSION: {"mimeTypes": [MEDIA_TYPE]}}}
NOT: tuple[Message, ...] = (
    {},
    {"extensions": {EXTENSION: {"mimeTypes": ["text/plain"]}}},
    {"extensions": {EXTENSION: 1}},
)
PAGE = "ui://confide/memory"
OF_THE_PAGE = ["memory_decisions", "memory_decide"]
RESULT = {"content": [{"type": "text", "text": "words"}], "structuredContent": {"results": []}}

pytestmark = pytest.mark.addons


async def said(client: Client, method: str, **params: Any) -> Message:
    client.say("asked", method, **params)
    found = await client.next()
    assert found["id"] == "asked"
    return found


def meta(capabilities: Message, *, is_modern: bool) -> Message:
    return {"_meta": VERSION | {catalogue.CAPABILITIES_KEY: capabilities}} if is_modern else {}


@pytest.mark.parametrize("is_modern", [False, True])
async def test_a_client_that_shows_pages_is_offered_one(tmp_path: Path, is_modern: bool) -> None:
    params = meta(SHOWS, is_modern=is_modern)
    async with running(tmp_path) as (_, daemon, client):
        if not is_modern:
            opened = await said(client, "initialize", **{**OPENING, "capabilities": SHOWS})
        else:
            opened = await said(client, "server/discover", **params)
        assert opened["result"]["capabilities"]["extensions"][EXTENSION] == {}
        tools = {tool["name"]: tool for tool in (await said(client, "tools/list", **params))["result"]["tools"]}
        linked = {name: tool["_meta"]["ui"] for name, tool in tools.items() if "ui" in tool.get("_meta", {})}
        of_page = {"resourceUri": PAGE, "visibility": ["app"]}
        assert linked == {
            "memory_search": {"resourceUri": PAGE},
            "memory_status": {"resourceUri": PAGE},
            **dict.fromkeys(OF_THE_PAGE, of_page),
        }
        read = (await said(client, "resources/read", uri=PAGE, **params))["result"]
        (content,) = read["contents"]
        assert (content["uri"], content["mimeType"]) == (PAGE, MEDIA_TYPE)
        assert content["_meta"]["ui"]["csp"] == {
            f"{kind}Domains": [] for kind in ("connect", "resource", "frame", "baseUri")
        }
        assert ("resultType" in read) is is_modern
        daemon.lines.clear()
        client.say(7, CALL, name="memory_search", arguments={"query": "x"}, **params)
        await daemon.until(lambda: daemon.calls)
        assert daemon.calls[0]["params"]["_meta"]["confide/structured"] is True
        await daemon.say({"id": 7, "result": RESULT})
        assert (await client.next())["result"]["structuredContent"] == {"results": []}


@pytest.mark.parametrize("declared", NOT)
@pytest.mark.parametrize("is_modern", [False, True])
async def test_any_other_client_sees_nothing_of_it(tmp_path: Path, is_modern: bool, declared: Message) -> None:
    params = meta(declared, is_modern=is_modern)
    async with running(tmp_path) as (_, daemon, client):
        if not is_modern:
            opened = await said(client, "initialize", **{**OPENING, "capabilities": declared})
            assert "extensions" not in opened["result"]["capabilities"]
        listed = (await said(client, "tools/list", **params))["result"]["tools"]
        assert listed == catalogue.packaged_catalogue(catalogue.CORE).data["tools"]
        daemon.lines.clear()
        client.say(1, "resources/read", uri=PAGE, **params)
        client.say(2, CALL, name=OF_THE_PAGE[0], arguments={}, **params)
        client.say(3, CALL, name="memory_search", arguments={"query": "x"}, **params)
        await daemon.until(lambda: len([each for each in daemon.messages if "id" in each]) == 3)
        assert not any("confide/structured" in json.dumps(each) for each in daemon.messages)
        for number in (1, 2):
            await daemon.say({"id": number, "error": {"code": -32602, "message": "unknown"}})
        await daemon.say({"id": 3, "result": RESULT})
        assert "structuredContent" not in [await client.next() for _ in range(3)][-1]["result"]


async def test_a_daemon_adds_no_page_and_answers_for_none(tmp_path: Path) -> None:
    """Another address below `ui://` is the daemon's to refuse, and a call of the page's tools never reaches it."""
    async with running(tmp_path) as (_, daemon, client):
        await said(client, "initialize", **{**OPENING, "capabilities": SHOWS})
        daemon.lines.clear()
        client.call(1, OF_THE_PAGE[0])
        client.say(2, "resources/read", uri="ui://confide/other")
        await daemon.until(lambda: [each for each in daemon.messages if each.get("id") == 2])
        # What the call itself asks of the daemon may have come, or not yet.
        assert not {call["params"]["name"] for call in daemon.calls} & {*OF_THE_PAGE}


@pytest.mark.parametrize("html", ["no_such_module:html", "confide_proxy.mcp.catalogue:packaged_catalogue"])
def test_a_page_that_cannot_be_made_is_none(html: str) -> None:
    """The session goes on without it."""
    views = ResultViews([ResultView("ui://broken/page", "Broken", html, ("memory_search",))])
    assert views.resource("ui://broken/page") is None


def test_an_add_on_that_cannot_be_loaded_leaves_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise AddonError("broken", ValueError("x"))

    installed_views.of_addons.cache_clear()
    monkeypatch.setattr(addons, "installed", fail)
    assert installed_views.of_addons() is NONE
    installed_views.of_addons.cache_clear()


def test_the_first_answer_waits_for_no_event_loop() -> None:
    """A client that shows pages gets it about as soon as any other, and its page without what the buttons need."""
    script = (
        "import sys\nfrom confide_proxy.mcp.features import installed_views\n"
        "assert installed_views.of_addons().resource('ui://confide/memory')\n"
        "print({'asyncio', 'nacl', 'confide_proxy.freshness.note_ties'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
