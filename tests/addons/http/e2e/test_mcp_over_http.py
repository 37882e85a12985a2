"""MCP over HTTP, by the official client in both eras and by hand: what `confide mcp` does over stdio, and the rules of the transport."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import mcp_types
import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.programs.gateway import Gateway
from tests.support.programs.mcp_session import ERAS, Era

from confide_http.local.upstream import ENVELOPE, PROTOCOL
from confide_memory.tools.result_views import EXTENSION, MEDIA_TYPE
from confide_proxy.mcp.catalogue import CAPABILITIES_KEY

LATER = {"MCP-Protocol-Version": PROTOCOL, "Accept": "application/json, text/event-stream"}


def later(method: str, identifier: Any = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identifier, "method": method, "params": {**params, "_meta": dict(ENVELOPE)}}


@pytest.mark.parametrize("era", ERAS)
async def test_the_official_client_stores_and_finds(gateway: Gateway, writer: str, era: Era) -> None:
    """Its tools are those of `confide mcp`, less what reads files of this machine."""
    async with gateway.session(writer, era) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert tools == {
            *(
                "memory_search",
                "memory_read",
                "memory_store",
                "memory_update",
                "memory_delete",
                "memory_status",
                "memory_sync",
            )
        }
        stored = await client.call_tool(
            "memory_store", {"content": f"Quokkas of the {era} era smile.", "path": f"memory/{era}.md"}
        )
        assert not stored.is_error, stored.content
        found = await client.call_tool("memory_search", {"query": f"quokkas {era}"})
        assert "smile" in str(found.content)
        assert found.structured_content is not None
        assert found.structured_content["results"][0]["class"] == "untrusted"
        assert (gateway.machine.project / f"memory/{era}.md").read_text().count("smile") == 1
        with pytest.raises(Exception, match="unknown tool"):
            await client.call_tool("memory_import", {"paths": ["/etc/passwd"]})
        with pytest.raises(Exception, match="in the toolset notes, which is switched off; set toolsets"):
            await client.call_tool("memory_list", {})


async def test_a_trusted_token_speaks_for_an_agent(gateway: Gateway) -> None:
    token = gateway.token("trusted", "--scope", "write", "--trusted")
    async with gateway.session(token) as client:
        await client.call_tool(
            "memory_store", {"content": "Numbats eat twenty thousand termites a day.", "path": "memory/numbats.md"}
        )
        found = await client.call_tool("memory_search", {"query": "numbats termites"})
    assert found.structured_content is not None
    assert "agent" in {
        hit["class"] for hit in found.structured_content["results"] if hit["path"] == "memory/numbats.md"
    }


async def test_a_reader_is_shown_what_it_may_call(gateway: Gateway, reader: str) -> None:
    async with gateway.session(reader) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
    assert tools == {"memory_search", "memory_read", "memory_status"}


SHOWS = {"extensions": {EXTENSION: {"mimeTypes": [MEDIA_TYPE]}}}
PAGE = "ui://confide/memory"


def asked(gateway: Gateway, token: str, era: Era, capabilities: dict[str, Any], method: str, **params: Any) -> Any:
    """The outcome of a request of a client with these capabilities."""
    accept = {"Accept": LATER["Accept"]}
    if era == PROTOCOL:
        meta = {**ENVELOPE, CAPABILITIES_KEY: capabilities}
        name = params.get("uri", params.get("name"))
        headers = {**LATER, "Mcp-Method": method, **({"Mcp-Name": name} if name else {})}
    else:
        opening = {
            "protocolVersion": "2025-06-18",
            "capabilities": capabilities,
            "clientInfo": {"name": "a", "version": "1"},
        }
        opened = gateway.request(
            "POST",
            "/mcp",
            {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": opening},
            token=token,
            headers=accept,
        )
        assert (EXTENSION in opened.json["result"]["capabilities"].get("extensions", {})) is (capabilities == SHOWS)
        meta, headers = {}, {**accept, "Mcp-Session-Id": opened.headers["mcp-session-id"]}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    return gateway.request("POST", "/mcp", message, token=token, headers=headers).json


@pytest.mark.parametrize("era", ERAS)
def test_a_client_that_shows_pages_gets_one(gateway: Gateway, writer: str, era: Era) -> None:
    """Its buttons are for a trusted token alone: they decide with the rights of this device."""
    trusted = gateway.token("trusted", "--scope", "write", "--trusted")
    limited = gateway.token("limited", "--scope", "write", "--trusted", "--project", "project")
    buttons = {"memory_decisions", "memory_decide"}
    for token, may_decide in ((trusted, True), (writer, False), (limited, False)):
        listed = asked(gateway, token, era, SHOWS, "tools/list")["result"]["tools"]
        linked = {tool["name"] for tool in listed if tool.get("_meta", {}).get("ui", {}).get("resourceUri") == PAGE}
        assert linked == {"memory_search", "memory_status"} | (buttons if may_decide else set())
        (content,) = asked(gateway, token, era, SHOWS, "resources/read", uri=PAGE)["result"]["contents"]
        assert content["mimeType"] == MEDIA_TYPE
        waiting = asked(gateway, token, era, SHOWS, "tools/call", name="memory_decisions", arguments={})
        assert ("result" in waiting) is may_decide
        if may_decide:
            assert waiting["result"]["structuredContent"]["decisions"] == []
        found = asked(gateway, token, era, SHOWS, "tools/call", name="memory_search", arguments={"query": "shop"})
        assert "results" in found["result"]["structuredContent"]
    listed = asked(gateway, trusted, era, {}, "tools/list")["result"]["tools"]
    assert not any("ui" in tool.get("_meta", {}) for tool in listed)
    for method, params in (
        ("resources/read", {"uri": PAGE}),
        ("tools/call", {"name": "memory_decide", "arguments": {}}),
    ):
        assert "error" in asked(gateway, trusted, era, {}, method, **params)


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
@pytest.mark.parametrize("era", ERAS)
async def test_a_listener_hears_of_a_change(gateway: Gateway, writer: str, era: Era) -> None:
    """By the stream of its session, or by one that it opens for it."""
    heard: asyncio.Queue[Any] = asyncio.Queue()
    path = f"memory/heard-{era}.md"
    uri = f"memory://file/project/{path}"
    async with gateway.session(writer, era, message_handler=heard.put) as client, asyncio.timeout(DEADLINE_S):
        await client.call_tool("memory_store", {"content": "The first word.", "path": path})
        if era == "legacy":
            await client.subscribe_resource(uri)
            await client.call_tool("memory_store", {"content": "The second word.", "path": path})
            while not isinstance(news := await heard.get(), mcp_types.ResourceUpdatedNotification):
                pass
            assert str(news.params.uri) == uri
        else:
            async with client.listen(resource_subscriptions=[uri]) as news:
                await client.call_tool("memory_store", {"content": "The second word.", "path": path})
                async for told in news:
                    assert uri in str(told)
                    break


async def test_progress_comes_on_the_way(gateway: Gateway, writer: str) -> None:
    seen: list[float] = []

    async def follow(done: float, total: float | None, message: str | None) -> None:
        seen.append(done)

    async with gateway.session(writer) as client:
        await client.call_tool("memory_sync", {"force": True}, progress_callback=follow)
    assert seen


def test_headers_and_body_must_agree(gateway: Gateway, writer: str) -> None:
    """What routes a request of the later era stands in both (MCP 2026-07-28, "Streamable HTTP")."""
    call = later("tools/call", name="memory_search", arguments={"query": "elixir"})
    good = LATER | {"Mcp-Method": "tools/call", "Mcp-Name": "memory_search"}
    assert gateway.request("POST", "/mcp", call, token=writer, headers=good).status == 200
    wrong: list[dict[str, str]] = [
        good | {"Mcp-Method": "tools/list"},
        good | {"Mcp-Name": "memory_store"},
        good | {"Mcp-Name": "=?base64?bWVtb3J5X3N0b3Jl?="},
        good | {"Mcp-Name": "=?base64?bWVtb3J5X3NlYXJjaB==?="},  # not as base64 is written
        good | {"MCP-Protocol-Version": "2025-11-25"},
        {name: value for name, value in good.items() if name != "MCP-Protocol-Version"},
        {name: value for name, value in good.items() if name != "Mcp-Name"},
    ]
    for headers in wrong:
        answer = gateway.request("POST", "/mcp", call, token=writer, headers=headers)
        assert (answer.status, answer.json["error"]["code"]) == (400, -32020), headers
    hidden = good | {"Mcp-Name": "=?base64?bWVtb3J5X3NlYXJjaA==?="}
    assert gateway.request("POST", "/mcp", call, token=writer, headers=hidden).status == 200
    unknown = gateway.request(
        "POST", "/mcp", later("tools/nod"), token=writer, headers=LATER | {"Mcp-Method": "tools/nod"}
    )
    assert (unknown.status, unknown.json["error"]["code"]) == (404, -32601)


def test_an_older_client_has_a_session(gateway: Gateway, writer: str, reader: str) -> None:
    """It begins with `initialize`, belongs to the token that opened it, and ends with DELETE."""
    opening = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}
    opened = gateway.request("POST", "/mcp", opening, token=writer)
    session = {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-06-18"}
    assert opened.json["result"]["protocolVersion"] == "2025-06-18"
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    assert gateway.request("POST", "/mcp", ping, token=writer).status == 400
    assert gateway.request("POST", "/mcp", ping, token=writer, headers=session).json["result"] == {}
    assert gateway.request("POST", "/mcp", ping, token=reader, headers=session).status == 404
    done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert gateway.request("POST", "/mcp", done, token=writer, headers=session).status == 202
    called = {
        "jsonrpc": "2.0",
        "id": 3,
        "method": "tools/call",
        "params": {"name": "memory_search", "arguments": {"query": "x"}},
    }
    for name in (["memory_search"], {}, 1, None):  # no name of a tool
        wrong = {**called, "params": {"name": name, "arguments": {"query": "x"}}}
        answer = gateway.request("POST", "/mcp", wrong, token=writer, headers=session)
        assert (answer.status, answer.json["error"]["code"]) == (200, -32602), name
    result = gateway.request("POST", "/mcp", called, token=writer, headers=session).json["result"]
    assert result.keys() - {"isError"} == {
        "content"
    }  # nothing of the later era, and no structured form that nobody asked for
    assert gateway.request("DELETE", "/mcp", token=writer, headers=session).status == 204
    assert gateway.request("POST", "/mcp", ping, token=writer, headers=session).status == 404


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, -32700),
        (b"{", 400, -32700),
        (b"[]", 400, -32600),
        (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', 400, -32600),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', 400, -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "x": "\\ud800"}', 400, -32600),
        (b"[" * 100_000, 400, -32700),
    ],
    ids=["empty", "half", "list", "batch", "id", "surrogate", "deep"],
)
def test_what_is_no_message_is_refused(gateway: Gateway, writer: str, body: bytes, status: int, code: int) -> None:
    answer = gateway.request("POST", "/mcp", body, token=writer)
    assert (answer.status, answer.json["error"]["code"]) == (status, code)


def test_other_media_types_are_refused(gateway: Gateway, writer: str) -> None:
    ping = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
    form = gateway.request("POST", "/mcp", ping, token=writer, headers={"Content-Type": "text/plain"})
    assert form.status == 415
    picture = gateway.request("POST", "/mcp", ping, token=writer, headers={"Accept": "image/png"})
    assert picture.status == 406
