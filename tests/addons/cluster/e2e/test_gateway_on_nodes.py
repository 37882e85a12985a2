"""The gateway of a server on two nodes: a program may ask any of them, whichever holds its space, and a balancer needs no stickiness."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.addons.http.server.test_server_attacks import call
from tests.support.daemon.postgres import Postgres
from tests.support.deadline import DEADLINE_S
from tests.support.network.ports import free_port
from tests.support.programs.door_attacks import LATER, LISTEN
from tests.support.programs.gateway import Door
from tests.support.programs.mcp_session import ERAS, Era
from tests.support.programs.nodes import Node, Nodes, Wire, several
from tests.support.programs.processes import SERVER_KEEPS, Inside, wait_until
from tests.support.programs.signing_in import REDIRECT, Program, error_of

from confide_cluster.shared.speaking import Speaker
from confide_crypto.errors import DeniedError
from confide_crypto.keys.bearer_tokens import digest_of
from confide_crypto.keys.identity import Identity
from confide_crypto.transport.open_channel import connect
from confide_daemon.datadir.daemon_keys import load

PUBLIC = f"http://127.0.0.1:{free_port()}"
"""Of the balancer, which is none here: each test says which node it leads to."""
GATEWAY = f'[gateway]\nlisten = "127.0.0.1:0"\npublic_url = "{PUBLIC}"\n'
LEASE_S = 120
"""A session of the older era ends with the lease that it was begun under. No test here waits for a lease to run out, so none does."""
SHUT_OUT_S = 10.0
"""On a machine with twenty other things to do; the page says a second."""


@dataclass
class Named(Door):
    """The gateway of one node, under the name that all of them have."""

    @property
    def url(self) -> str:
        return PUBLIC


def at(node: Node, kind: type[Door] = Door) -> Door:
    return kind(int(re.findall(r"the gateway listens on 127\.0\.0\.1 port (\d+)", node.log)[-1]))


@pytest.fixture(scope="module")
def nodes(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with several(tmp_path_factory.mktemp("gateways"), postgres, lease_s=LEASE_S, more=SERVER_KEEPS + GATEWAY) as found:
        yield found


@pytest.fixture(autouse=True)
def all_serve(nodes: Nodes) -> None:
    nodes.serve()


def token(node: Node, space: str, name: str = "chat") -> str:
    made: str = node.json("http", "allow", f"{name}-{space}", "--space", space, "--scope", "write")["token"]
    return made


async def text_of(client: Any, tool: str, **arguments: Any) -> str:
    done = await client.call_tool(tool, arguments)
    assert not done.is_error, done.content
    return str(done.content)


@pytest.mark.parametrize("era", ERAS)
async def test_a_token_that_is_made_at_one_node_is_good_at_the_other(nodes: Nodes, era: Era) -> None:
    """At once; and what it asks is answered where the space is held: news both ways, and a session of the older era goes on there."""
    first, second = nodes.nodes
    space = f"here-{era}"
    identity = first.enroll(space)
    async with await first.connect(identity) as machine, asyncio.timeout(DEADLINE_S):
        await machine.attach("farm")
        await machine.put("memory/hen.md", "The hen is called Ida.\n", project="farm")
        text = token(first, space)
        async with at(second).session(text, era) as client:
            assert "Ida" in await text_of(client, "memory_search", query="hen called")
            await text_of(
                client, "memory_store", content="The goat is called Otto.", path="memory/goat.md", project="farm"
            )
            assert "Otto" in (await machine.applied.get())["text"]
            refused = await client.call_tool("memory_read", {"path": "memory/none.md", "project": "farm"})
            assert refused.is_error
            if era != "legacy":
                uri = "memory://file/farm/memory/hen.md"
                async with client.listen(resource_subscriptions=[uri]) as news:
                    await machine.put("memory/hen.md", "The hen is called Eva.\n", project="farm")
                    async for told in news:
                        assert uri in str(told)
                        break
        if era == "legacy":
            session_at_both(text, first, second)
    assert nodes.holder(space) is first
    # Nothing of it, and no token, stands in what either of them says.
    assert not re.search(rf"Ida|Otto|hen\.md|{text}", first.log + second.log)


def session_at_both(text: str, *nodes: Node) -> None:
    """A session of the older era that is begun at one node goes on at the other: it is the holder's."""
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    headers = {"Accept": "application/json, text/event-stream"}
    begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    begun = at(nodes[1]).request("POST", "/mcp", begin, token=text, headers=headers)
    assert begun.status == 200, begun.body
    headers |= {"Mcp-Session-Id": begun.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-06-18"}
    told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    for node in nodes:
        assert at(node).request("POST", "/mcp", told, token=text, headers=headers).status == 202
        asked = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        answer = at(node).request("POST", "/mcp", asked, token=text, headers=headers)
        assert answer.status == 200
        assert b"memory_search" in answer.body
    assert at(nodes[1]).request("DELETE", "/mcp", token=text, headers=headers).status == 200
    assert at(nodes[0]).request("POST", "/mcp", asked, token=text, headers=headers).status == 404


def test_a_token_that_is_taken_away_at_one_node_ends_at_the_other(nodes: Nodes) -> None:
    """A stream that is passed on too; and the holder's own."""
    first, second = nodes.nodes
    identity = first.enroll("gone")
    wire = Wire(first, identity)
    asyncio.run(written(wire, "memory/a.md", "text\n"))
    text = token(first, "gone")
    streams = [listen(at(node), text) for node in nodes.nodes]
    assert [stream.status for _, stream in streams] == [200, 200]
    second.run("gateway", "rm", "chat-gone")
    began = time.monotonic()
    for connection, stream in streams:
        while read(stream):
            pass
        connection.close()
    assert time.monotonic() - began < SHUT_OUT_S
    for node in nodes.nodes:
        assert call(at(node), text, "memory_status").status == 401  # type: ignore[arg-type]


async def written(wire: Wire, path: str, text: str) -> None:
    await wire.put(path, text)
    await wire.close()


def listen(gateway: Door, text: str) -> Any:
    connection = gateway.connection()
    headers = LATER | {"Authorization": f"Bearer {text}", "Content-Type": "application/json"}
    connection.request("POST", "/mcp", json.dumps(LISTEN), headers)
    return connection, connection.getresponse()


def read(stream: Any) -> bytes:
    """The next line; empty where the stream has ended, also in the middle."""
    try:
        line: bytes = stream.readline()
    except OSError:
        return b""
    return line


def test_the_steps_of_a_sign_in_may_be_taken_at_different_nodes(nodes: Nodes, tmp_path: Path) -> None:
    """Each at once behind the one before, at the other node; and what may happen once happens once, wherever it is tried again."""
    first, second = nodes.nodes
    machine = Inside(tmp_path, "ann", is_set_up=False)
    machine.allow("project")
    url = f"confide://127.0.0.1:{second.port}"
    machine.run("join", first.json("invite", "ann", "--no-wait", "--url", url)["invite"])
    machine.run("sync")
    made = first.json("http", "allow", "Chat", "--space", "ann", "--redirect", REDIRECT)
    here, there = (Program(at(node, Named), made["id"]) for node in nodes.nodes)
    there.verifier = here.verifier
    page = there.page()
    machine.run("gateway", "approve", here.words(page), "--yes", "--name", "chat")
    code = there.code(page)
    # The browser's own second visit gets the same code, at the node that has shown the page before too, until it is used.
    wait_until("the other node to know it", lambda: at(first).request("GET", page).status == 302)
    assert here.code(page) == code
    tokens = here.exchange(code).json
    wait_until("the page to have ended", lambda: at(second).request("GET", page).status == 404)
    assert call(at(second), tokens["access_token"], "memory_status").status == 200  # type: ignore[arg-type]
    # The answer may have been lost with its node: the other one gives the same, for a code and for a refresh token.
    assert there.exchange(code).json["refresh_token"] == tokens["refresh_token"]
    with ThreadPoolExecutor(2) as pool:
        at_once = pool.map(lambda program: program.refresh(tokens["refresh_token"]).json, (here, there))
    next_ones, same = at_once
    assert next_ones["refresh_token"] == same["refresh_token"]
    assert call(at(first), next_ones["access_token"], "memory_status").status == 200  # type: ignore[arg-type]
    # A code, and a refresh token, that come again later at the other node were in two hands.
    assert error_of(there.exchange(code)) == (400, "invalid_grant")
    wait_until("it to be out at both", lambda: all(is_out(node, next_ones["access_token"]) for node in nodes.nodes))
    assert error_of(here.refresh(next_ones["refresh_token"])) == (400, "invalid_grant")


def is_out(node: Node, text: str) -> bool:
    return call(at(node), text, "memory_status").status == 401  # type: ignore[arg-type,no-any-return]


def test_no_request_fails_while_the_holder_is_told_to_stop(nodes: Nodes) -> None:
    """What it was asked is answered, and the next is answered by the other one; nothing that was stored is there twice."""
    first, second = nodes.nodes
    identity = first.enroll("moved")
    asyncio.run(written(Wire(first, identity), "memory/a.md", "The tide table hangs in the hall.\n"))
    text = token(second, "moved")
    stored: list[int] = []

    def ask(node: Node) -> None:
        number = len(stored)
        stored.append(number)
        path = f"memory/{number}.md"
        made = call(at(node), text, "memory_store", content=f"Boat {number}.", path=path, project="proj")  # type: ignore[arg-type]
        assert made.status == 200, made.body
        assert b'"isError":true' not in made.body, made.body
        found = call(at(node), text, "memory_search", query="tide table")  # type: ignore[arg-type]
        assert b"hall" in found.body, found.body

    ask(second)
    holder = nodes.holder("moved")
    assert holder is not None
    other = second if holder is first else first
    ask(other)
    assert holder.process is not None
    holder.process.terminate()
    while holder.process.poll() is None:
        ask(other)
    ask(other)
    assert nodes.holder("moved") is other
    for number in stored:
        found = call(at(other), text, "memory_read", path=f"memory/{number}.md", project="proj")  # type: ignore[arg-type]
        assert found.body.count(f"Boat {number}.".encode()) == 1


def test_a_holder_that_is_killed_is_followed(nodes: Nodes) -> None:
    """A stream that was passed on ends, not as if it were whole, and what only reads is asked of the next holder unseen."""
    first, second = nodes.nodes
    identity = first.enroll("killed")
    asyncio.run(written(Wire(first, identity), "memory/a.md", "The tide table hangs in the hall.\n"))
    text = token(first, "killed")
    connection, _ = listen(at(first), text)  # so that the space stays there
    holder = nodes.holder("killed")
    assert holder is not None
    other = second if holder is first else first
    passed, passed_stream = listen(at(other), text)
    assert passed_stream.status == 200
    assert b"hall" in call(at(other), text, "memory_search", query="tide table").body  # type: ignore[arg-type]
    holder.kill()
    assert b"hall" in call(at(other), text, "memory_search", query="tide table").body  # type: ignore[arg-type]
    assert nodes.holder("killed") is other
    while read(passed_stream):
        pass
    connection.close()
    passed.close()


async def test_at_the_address_for_nodes_a_token_is_no_machine(nodes: Nodes) -> None:
    """Whoever has a token, or its hash, comes in by no channel; a node that speaks for a machine says no request by HTTP for it."""
    first, _ = nodes.nodes
    machine = first.enroll("door")
    text = token(first, "door")
    digest = digest_of(text)
    assert digest is not None
    daemon = load(first.folder).current
    node = Identity.generate()
    url = f"ws://127.0.0.1:{first.node_port}"
    now = int(time.time())
    for speaker in (Speaker(1, digest, "ab" * 16), Speaker(1, machine.public_key, "ab" * 16, is_by_http=True)):
        hello = speaker.hello(daemon, node.public_key, now=now)
        with pytest.raises(DeniedError, match="not enrolled"):
            await connect(url, node, daemon.static_key, hello=hello)
        with pytest.raises(DeniedError, match="not enrolled"):
            await connect(f"ws://127.0.0.1:{first.port}", node, daemon.static_key, hello=hello)
    hello = Speaker(1, digest, "ab" * 16, is_by_http=True).hello(daemon, node.public_key, now=now)
    right = await connect(url, node, daemon.static_key, hello=hello)
    assert right.welcome["caller"] == "chat-door"
    await right.close()
    await asyncio.to_thread(first.run, "gateway", "rm", "chat-door")
    with pytest.raises(DeniedError, match="revoked"):
        await connect(url, node, daemon.static_key, hello=hello)
