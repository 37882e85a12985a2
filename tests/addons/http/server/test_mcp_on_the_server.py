"""MCP over HTTP from the server, by the official client in both eras: what a channel's agent has, less what takes a machine."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types
import pytest
from mcp.client.extension import advertise
from tests.support.deadline import DEADLINE_S
from tests.support.programs.door_attacks import LISTEN, listen
from tests.support.programs.mcp_session import ERAS, Era
from tests.support.programs.server_gateway import ServerGateway

from confide_memory.tools.result_views import EXTENSION, MEDIA_TYPE

READING = {"memory_search", "memory_read", "memory_status"}
WRITING = {"memory_store", "memory_update", "memory_delete"}


async def text_of(client: Any, tool: str, **arguments: Any) -> str:
    done = await client.call_tool(tool, arguments)
    assert not done.is_error, done.content
    return str(done.content)


@pytest.mark.parametrize("era", ERAS)
async def test_the_official_client_stores_and_finds(gateway: ServerGateway, writer: str, era: Era) -> None:
    """What it stores is untrusted, whatever it says of itself; and nothing opens a secret, or reads files of a machine."""
    async with gateway.session(writer, era) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert tools == READING | WRITING
        said: Any = {"confide/class": "owner"}
        path = f"memory/{era}.md"
        stored = await client.call_tool(
            "memory_store", {"content": f"Quokkas of the {era} era smile.", "path": path, "project": "zoo"}, meta=said
        )
        assert not stored.is_error, stored.content
        found = await client.call_tool("memory_search", {"query": f"quokkas {era}"})
        assert found.structured_content is not None
        (hit, *_) = found.structured_content["results"]
        assert (hit["class"], hit["project"]) == ("untrusted", "zoo")
        assert "smile" in await text_of(client, "memory_read", path=path, project="zoo")
        for name in ("secret_get", "memory_import", "memory_sync"):
            with pytest.raises(Exception, match="unknown tool"):
                await client.call_tool(name, {"id": "0" * 32, "paths": ["/etc/passwd"]})


async def test_a_trusted_token_speaks_for_an_agent(gateway: ServerGateway) -> None:
    token = gateway.token("trusted", "--scope", "write", "--trusted")
    async with gateway.session(token) as client:
        await text_of(client, "memory_store", content="Numbats eat termites.", path="memory/numbats.md", project="zoo")
        found = await client.call_tool("memory_search", {"query": "numbats termites"})
    assert found.structured_content is not None
    assert found.structured_content["results"][0]["class"] == "agent"


PAGE = "ui://confide/memory"


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_shows_pages_gets_one_without_buttons(gateway: ServerGateway, era: Era) -> None:
    """It shows results and conflicts; what waits for a decision is on a device, even for a trusted token."""
    token = gateway.token("trusted", "--scope", "write", "--trusted")
    shows = [advertise(EXTENSION, {"mimeTypes": [MEDIA_TYPE]})]
    async with gateway.session(token, era, extensions=shows) as client:
        assert client.server_capabilities.extensions == {EXTENSION: {}}
        linked = {tool.name: tool.meta for tool in (await client.list_tools()).tools if tool.meta and "ui" in tool.meta}
        assert {name: meta["ui"] for name, meta in linked.items()} == {
            "memory_search": {"resourceUri": PAGE},
            "memory_status": {"resourceUri": PAGE},
        }
        (page,) = (await client.read_resource(PAGE)).contents
        assert isinstance(page, mcp_types.TextResourceContents)
        assert page.mime_type == MEDIA_TYPE
        assert page.meta is not None
        assert not any(page.meta["ui"]["csp"].values())
        assert "<title>Memory" in page.text
        await text_of(client, "memory_store", content="Dugongs graze.", path="memory/dugongs.md", project="sea")
        found = await client.session.call_tool("memory_search", {"query": "dugongs graze"})
        assert found.structured_content is not None
        assert found.structured_content["results"][0]["path"] == "memory/dugongs.md"
        stored = await client.session.call_tool("memory_read", {"path": "memory/dugongs.md", "project": "sea"})
        assert stored.structured_content is None
        with pytest.raises(Exception, match="unknown tool"):
            await client.call_tool("memory_decisions", {})


@pytest.mark.parametrize("era", ERAS)
async def test_any_other_client_sees_no_page(gateway: ServerGateway, writer: str, era: Era) -> None:
    others = [advertise(EXTENSION, {"mimeTypes": ["text/plain"]})]
    for extensions in (others, None):
        async with gateway.session(writer, era, extensions=extensions) as client:
            assert EXTENSION not in (client.server_capabilities.extensions or {})
            tools = (await client.list_tools()).tools
            assert not any("ui" in (tool.meta or {}) for tool in tools)
            found = await client.session.call_tool("memory_search", {"query": "dugongs"})
            assert found.structured_content is None
            with pytest.raises(Exception, match="no such resource"):
                await client.read_resource(PAGE)


@pytest.mark.parametrize("era", ERAS)
async def test_a_reader_is_shown_what_it_may_call(gateway: ServerGateway, reader: str, era: Era) -> None:
    async with gateway.session(reader, era) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == READING
        with pytest.raises(Exception, match="unknown tool"):
            await client.call_tool("memory_store", {"content": "Never.", "path": "memory/never.md", "project": "zoo"})


async def test_a_token_of_a_project_gets_nothing_of_another(gateway: ServerGateway, writer: str) -> None:
    """Neither by a tool, nor as a resource; and it writes nothing there."""
    async with gateway.session(writer) as client:
        await text_of(client, "memory_store", content="The okapi is shy.", path="memory/okapi.md", project="aviary")
    token = gateway.token("one", "--scope", "write", "--project", "reptiles")
    async with gateway.session(token) as client:
        assert "okapi" not in await text_of(client, "memory_search", query="okapi shy")
        for tool, more in (("memory_read", {}), ("memory_store", {"content": "Mine."})):
            done = await client.call_tool(tool, {"path": "memory/okapi.md", "project": "aviary", **more})
            assert done.is_error
            assert "shy" not in str(done.content)
        assert "aviary" not in str(await client.list_resources())
        with pytest.raises(Exception, match="no such file"):
            await client.read_resource("memory://file/aviary/memory/okapi.md")
        await text_of(client, "memory_store", content="Skinks shed their tails.", path="memory/skinks.md")
        assert "Skinks" in await text_of(client, "memory_read", path="memory/skinks.md", project="reptiles")


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
@pytest.mark.parametrize("era", ERAS)
async def test_a_listener_hears_of_another_s_change(gateway: ServerGateway, writer: str, era: Era) -> None:
    """By the stream of its session, or by one that it opens for it: also of what a client with another token has written."""
    heard: asyncio.Queue[Any] = asyncio.Queue()
    path = f"memory/heard-{era}.md"
    uri = f"memory://file/zoo/{path}"
    other = gateway.token("other", "--scope", "write")
    async with (
        gateway.session(writer, era, message_handler=heard.put) as client,
        gateway.session(other) as second,
        asyncio.timeout(DEADLINE_S),
    ):
        await text_of(client, "memory_store", content="The first word.", path=path, project="zoo")
        if era == "legacy":
            await client.subscribe_resource(uri)
            await text_of(second, "memory_store", content="The second word.", path=path, project="zoo")
            while not isinstance(news := await heard.get(), mcp_types.ResourceUpdatedNotification):
                pass
            assert str(news.params.uri) == uri
        else:
            async with client.listen(resource_subscriptions=[uri]) as news:
                await text_of(second, "memory_store", content="The second word.", path=path, project="zoo")
                async for told in news:
                    assert uri in str(told)
                    break


async def test_machines_and_clients_hear_of_each_other_s_changes(gateway: ServerGateway, writer: str) -> None:
    """What is stored by HTTP comes to the disk of a machine that keeps the project; what a person saves there is news to a listener."""
    confided = gateway.confided
    identity = confided.enroll("desk", "--space", "home")
    async with (
        asyncio.timeout(DEADLINE_S),
        await confided.connect(identity) as desk,
        gateway.session(writer, ERAS[-1]) as client,
    ):
        await desk.attach("farm")
        await text_of(client, "memory_store", content="The goat is called Otto.", path="memory/goat.md", project="farm")
        assert "Otto" in (await desk.applied.get())["text"]
        uri = "memory://file/farm/memory/hen.md"
        async with client.listen(resource_subscriptions=[uri]) as news:
            await desk.put("memory/hen.md", "The hen is called Ida.\n", project="farm")
            async for told in news:
                assert uri in str(told)
                break


async def test_what_the_operator_changes_counts_at_once(gateway: ServerGateway) -> None:
    """A client is a caller like a machine: it may less from the next request on."""
    token = gateway.token("lessened", "--scope", "write")
    async with gateway.session(token) as client:
        await text_of(client, "memory_store", content="First.", path="memory/less.md", project="zoo")
        gateway.confided.run("device", "edit", "lessened", "--scope", "read")
        assert {tool.name for tool in (await client.list_tools()).tools} == READING
        with pytest.raises(Exception, match="unknown tool"):
            await client.call_tool("memory_store", {"content": "More.", "path": "memory/less.md", "project": "zoo"})


def test_a_token_is_refused_once_its_time_is_over(gateway: ServerGateway) -> None:
    """And its stream ends then, as if it had been taken away."""
    token = gateway.token("short-lived")
    connection, stream = listen(gateway, token)
    assert stream.status == 200
    gateway.confided.run("device", "edit", "short-lived", "--expires", "1s")
    while stream.readline():  # one that went on would be kept alive with comments, and time out
        pass
    connection.close()
    answer = gateway.request("POST", "/mcp", LISTEN, token=token)
    assert answer.status == 401
    assert 'error="invalid_token"' in answer.headers["www-authenticate"]
