"""Two nodes serve one space: a session that lands on one is served by the other, and nobody sees a difference."""

from __future__ import annotations

import asyncio
import signal
import time
from base64 import b64encode
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.cables import Cable
from tests.support.deadline import DEADLINE_S
from tests.support.programs.busy_agent import busy_agent
from tests.support.programs.confided import Confided
from tests.support.programs.mcp_session import session
from tests.support.programs.nodes import Node, Nodes, Wire, news
from tests.support.programs.processes import Inside, wait_until

from confide_cluster.shared.speaking import Speaker
from confide_crypto.errors import ConnectionLost, DeniedError, HandshakeError, RequestError, UnreachableError
from confide_crypto.keys.identity import Identity, parse_daemon_key
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.roster_entry import Card, Device
from confide_crypto.transport.open_channel import connect
from confide_daemon.access.registry import open_state
from confide_daemon.datadir.daemon_keys import load
from confide_memory.documents import text_hash

# Of these bench/nodes.py has the figures; here they hold on a machine with twenty other things to do.
REVOKED_S = 10.0
PAUSE_S = 10.0
AT_ONCE = 4
BETWEEN_S = 0.02


@pytest.fixture(autouse=True)
def all_serve(nodes: Nodes) -> None:
    nodes.serve()


async def test_a_session_is_served_by_the_holder_wherever_it_comes(nodes: Nodes) -> None:
    """Requests, texts as bodies, calls of tools and news, both ways, and refusals as they are."""
    first, second = nodes.nodes
    identity = first.enroll("space1")
    other = first.enroll("desktop1", "--space", "space1")
    long = "a line that is long enough\n" * 4000
    async with await first.connect(identity) as here:
        await here.attach("proj")
        await here.put("memory/a.md", "written at the holder\n")
        assert nodes.holder("space1") is first
        async with await second.connect(other) as there:
            await there.attach("proj")
            found = await there.request("pull", {"project": "proj", "path": "memory/a.md"})
            assert found["text"] == "written at the holder\n"
            await there.put("memory/b.md", "passed on\n")
            assert (await news(here, "memory/b.md"))["text"] == "passed on\n"
            await here.put("memory/c.md", "to the other one\n")
            assert (await news(there, "memory/c.md"))["text"] == "to the other one\n"
            hashed = text_hash(long)
            sent = await there.connection.upload(
                "put",
                {"project": "proj", "path": "memory/d.md", "hash": hashed, "base": 0},
                long.encode(),
                timeout_s=30,
            )
            assert sent["hash"] == hashed
            with pytest.raises(RequestError) as refused:
                await there.request("pull", {"project": "proj", "path": "memory/none.md"})
            assert refused.value.code == "not_found"
            async with there.mcp() as client:
                stored = await client.call_tool("memory_store", {"content": "The relay passes this on."})
                assert not stored.is_error
    assert nodes.holder("space1") is first
    assert "is passed on to node" in second.log


async def test_an_agent_notices_nothing_while_nodes_are_restarted(nodes: Nodes, tmp_path: Path) -> None:
    """With the real programs, behind what leads to a node that serves: a machine joins at one, its calls are passed on to another,

    and then each is restarted, as in an upgrade: no call fails, none waits for long, and all that was stored is there once.
    """
    first, second = nodes.nodes
    balancer = Cable(second.port)
    async with busy_agent(tmp_path, "space2", balancer.port, holder=first, inviter=second, at_once=AT_ONCE) as agent:
        for node, other in ((first, second), (second, first)):
            assert node.process is not None
            balancer.lead_to(other.port)
            node.process.terminate()
            while node.process.poll() is None:
                await agent.call()
            await agent.call()
            assert nodes.holder("space2") is other
            await asyncio.to_thread(node.begin)
        text = await agent.text()
    balancer.close()
    assert agent.longest_s < PAUSE_S
    # Neither what was stored and asked nor who did is anywhere that nodes leave something.
    left = (first.log + second.log).encode() + await asyncio.to_thread(nodes.postgres.dump, nodes.url)
    for secret in (b"harbour", b"Boat", b"tide tables", b"boats.md", agent.invite.rpartition("#")[2].encode()):
        assert secret not in left
    assert b"space2" not in await asyncio.to_thread(nodes.postgres.dump, nodes.url)
    agent.require_once(text)


async def test_whoever_is_revoked_on_one_node_is_out_on_all_at_once(nodes: Nodes) -> None:
    """By a command beside another node than the one that holds its space; a session that is passed on ends with the same word."""
    first, second = nodes.nodes
    identity = first.enroll("space3")
    async with await first.connect(identity) as here:
        await here.attach("proj")
        await here.put("memory/a.md", "text\n")
        async with await second.connect(identity) as there:
            await there.attach("proj")
            await asyncio.to_thread(second.run, "device", "rm", "space3")
            revoked = time.monotonic()
            for machine in (here, there):
                await machine.ended_within(DEADLINE_S)
                assert time.monotonic() - revoked < REVOKED_S
                assert machine.connection.close_code == "revoked"
    for one in nodes.nodes:
        with pytest.raises(DeniedError):
            await one.connect(identity)


async def test_a_lost_device_is_out_of_the_other_node_too(nodes: Nodes) -> None:
    """Its removal is brought at one node; its sessions end at both, and so does what came in by its invite."""
    first, second = nodes.nodes
    mine, stolen = first.enroll("lost"), first.enroll("stolen", "--space", "lost")
    roster, keys = Roster.create(mine, "mine", now=1)
    with_it = roster.add(mine, Device(Card.of(stolen), "stolen"), keys, now=2)
    without, _ = with_it.remove(mine, stolen.public_key, keys, now=3)
    async with await first.connect(mine) as owner, await second.connect(mine) as passed_on:
        for chain in (roster, with_it):
            await owner.request("extend", {"entry": b64encode(chain.entries[-1].encode()).decode()})
        async with await first.connect(stolen) as here, await second.connect(stolen) as there:
            for machine in (here, there):
                await machine.attach("proj")
            answer = await passed_on.request("extend", {"entry": b64encode(without.entries[-1].encode()).decode()})
            assert [one["name"] for one in answer["ended"]] == ["stolen"]
            for machine in (here, there):
                await machine.ended_within(DEADLINE_S)
                assert machine.connection.close_code == "revoked"
        await owner.attach("proj")
    for one in nodes.nodes:
        # Until a node has heard of it, it passes the session on to the holder, which has.
        await asyncio.to_thread(wait_until, "the node to hear of it", lambda one=one: is_revoked(one, "stolen"))
        with pytest.raises(DeniedError):
            await one.connect(stolen)


def is_revoked(node: Node, name: str) -> bool:
    with closing(open_state(node.folder)) as state:
        return state.registry.caller_named(name) is None


async def test_two_nodes_that_open_a_space_at_once_are_one_holder(nodes: Nodes) -> None:
    """Nobody holds it, and a machine comes to each: one of them serves both."""
    identities = [nodes.nodes[0].enroll(f"both{number}") for number in range(2)]
    for number, identity in enumerate(identities):
        wires = [Wire(node, identity) for node in nodes.nodes]
        await asyncio.gather(*(wire.put(f"memory/{at}.md", f"at {at}\n") for at, wire in enumerate(wires)))
        for wire in wires:
            assert [await wire.pull(f"memory/{at}.md") for at in range(2)] == ["at 0\n", "at 1\n"]
            await wire.close()
        assert nodes.sql("SELECT count(*) FROM log WHERE id = %s", space_id(nodes.nodes[0], f"both{number}")) == [(1,)]


def space_id(node: Node, name: str) -> str:
    with closing(open_state(node.folder)) as state:
        return state.registry.spaces()[name]


async def test_nobody_but_a_node_comes_in_at_the_address_for_nodes(nodes: Nodes) -> None:
    """Not an enrolled machine, not one that speaks for it without the daemon's certificate, not one whose certificate is old."""
    first, second = nodes.nodes
    caller = first.enroll("space4")
    daemon = load(second.folder).current
    node = Identity.generate()
    said = Speaker(1, caller.public_key, "ab" * 16)
    now = int(time.time())
    url = f"ws://127.0.0.1:{first.node_port}"
    wrong: list[tuple[Identity, dict[str, Any]]] = [
        (caller, {}),
        (node, {}),
        (node, said.hello(Identity.generate(), node.public_key, now=now)),
        (caller, said.hello(daemon, node.public_key, now=now)),
        (node, said.hello(daemon, node.public_key, now=now - 3600)),
    ]
    for identity, hello in wrong:
        with pytest.raises(DeniedError, match="not enrolled"):
            await connect(url, identity, daemon.static_key, hello=hello)
    right = await connect(url, node, daemon.static_key, hello=said.hello(daemon, node.public_key, now=now))
    assert right.welcome["caller"] == "space4"
    await right.close()
    await asyncio.to_thread(second.run, "device", "rm", "space4")
    await asyncio.to_thread(wait_until, "the other node to hear of it", lambda: is_revoked(first, "space4"))
    with pytest.raises(DeniedError, match="revoked"):
        await connect(url, node, daemon.static_key, hello=said.hello(daemon, node.public_key, now=now))
    with pytest.raises(DeniedError, match="not enrolled"):
        # And at the address for callers, it is nobody.
        await connect(
            f"ws://127.0.0.1:{first.port}",
            node,
            daemon.static_key,
            hello=said.hello(daemon, node.public_key, now=now),
        )
    with pytest.raises((UnreachableError, HandshakeError)):
        await connect(url, node, Identity.generate().static_key)
    assert parse_daemon_key(first.address["key"]) == daemon.static_key  # type: ignore[index]


async def test_a_holder_that_is_killed_is_followed_within_seconds(nodes: Nodes) -> None:
    """Its address refuses: nobody waits for its lease. What it had acknowledged is there, and a repeat is made once."""
    first, second = nodes.nodes
    identity = first.enroll("space5")
    wire = Wire(second, identity)
    async with await first.connect(identity) as here:
        await here.attach("proj")
        await here.put("memory/a.md", "of the first\n")
        await wire.put("memory/b.md", "passed on\n")
        first.kill()
        await wire.put("memory/c.md", "of the second\n")
    assert await wire.pull("memory/a.md") == "of the first\n"
    assert await wire.pull("memory/b.md") == "passed on\n"
    await wire.close()
    assert nodes.holder("space5") is second
    assert "refuses connections" in second.log


async def test_a_holder_that_is_told_to_stop_gives_its_spaces_back(nodes: Nodes) -> None:
    first, second = nodes.nodes
    identity = first.enroll("space6")
    wire = Wire(second, identity)
    async with await first.connect(identity) as here:
        await here.attach("proj")
        await here.put("memory/a.md", "of the first\n")
        await wire.put("memory/b.md", "passed on\n")
        assert first.ask("/ready") == (200, {"status": "ready"})
        assert first.process is not None
        before = len(second.log)
        first.process.terminate()
        await here.ended_within(DEADLINE_S)
        assert here.connection.close_code == "restart"
        await wire.put("memory/c.md", "of the second\n")
    await asyncio.to_thread(first.process.wait, DEADLINE_S)
    assert await wire.pull("memory/a.md") == "of the first\n"
    await wire.close()
    assert "refuses connections" not in second.log[before:]


async def test_a_holder_that_hangs_is_fenced_and_says_so(nodes: Nodes) -> None:
    """Silence is no refusal: the lease runs out first. When it goes on, nothing of its own is stored, and its sessions are sent away."""
    first, second = nodes.nodes
    identity = first.enroll("space7")
    wire = Wire(second, identity)
    async with await first.connect(identity) as here:
        await here.attach("proj")
        await here.put("memory/a.md", "of the first\n")
        first.signal(signal.SIGSTOP)
        late = asyncio.create_task(here.put("memory/late.md", "never acknowledged\n"))
        await wire.put("memory/b.md", "of the second\n")
        assert nodes.holder("space7") is second
        first.signal(signal.SIGCONT)
        with pytest.raises((RequestError, ConnectionLost)):
            await late
        await here.ended_within(DEADLINE_S)
        assert here.connection.close_code == "restart"
    with pytest.raises(RequestError):
        await wire.pull("memory/late.md")
    assert await wire.pull("memory/a.md") == "of the first\n"
    # And what comes to the first one is passed on to the second.
    async with await first.connect(identity) as again:
        await again.attach("proj")
        await again.put("memory/c.md", "passed back\n")
    assert await wire.pull("memory/c.md") == "passed back\n"
    await wire.close()


async def test_a_node_that_is_cut_off_from_its_store_takes_nobody_in(nodes: Nodes) -> None:
    """It may not know who was revoked. Its sessions read on, and are told."""
    first, _ = nodes.nodes
    identity = first.enroll("space8")
    async with await first.connect(identity) as here:
        await here.attach("proj")
        await here.put("memory/a.md", "text\n")
        nodes.postgres.stop()
        try:
            await asyncio.to_thread(wait_until, "it to be unready", lambda: first.ask("/ready")[0] == 503)
            with pytest.raises(DeniedError) as refused:
                await first.connect(identity)
            assert refused.value.reason == "busy"
            found = await here.request("pull", {"project": "proj", "path": "memory/a.md"})
            assert found["text"] == "text\n"
            with pytest.raises(RequestError) as unstored:
                await here.put("memory/b.md", "text\n")
            assert unstored.value.code == "unavailable"
        finally:
            nodes.postgres.start()
        await asyncio.to_thread(wait_until, "it to be ready", lambda: first.ask("/ready")[0] == 200)
        await here.put("memory/b.md", "text\n")


async def test_what_an_agent_says_while_postgresql_is_away_is_kept_and_stored_once(
    nodes: Nodes, tmp_path: Path
) -> None:
    """In a session that is open, and by a command: both are told so, and nobody has to say it again."""
    first, _ = nodes.nodes
    machine = Inside(tmp_path, "ann", is_set_up=False)
    machine.call_project("proj")
    url = f"confide://127.0.0.1:{first.port}"
    invite = first.json("invite", "space11", "--no-wait", "--url", url)["invite"]
    await asyncio.to_thread(machine.run, "join", invite)
    machine.write("memory/tides.md", "# Tides\n\nThe table hangs in the hall.\n")
    machine.write("memory/old.md", "# Old\n\nNobody needs this.\n")
    async with session(machine) as client:
        assert not (await client.call_tool("memory_sync", {})).is_error
        nodes.postgres.stop()
        try:
            told = await client.call_tool("memory_store", {"content": "Low water is at seven.", "path": "memory/a.md"})
            assert not told.is_error
            assert "Queued for memory/a.md" in str(told.content)
            assert "the database of the store" in str(told.content)
            by_hand = await asyncio.to_thread(machine.run, "store", "High water is at one.", "--path", "memory/a.md")
            assert "queued for memory/a.md" in by_hand
            assert "queued" in await asyncio.to_thread(machine.run, "rm", "memory/old.md", "--yes")
            assert "hall" in str((await client.call_tool("memory_search", {"query": "tides table"})).content)
        finally:
            nodes.postgres.start()
        await asyncio.to_thread(
            wait_until, "what waits to be sent", lambda: "nothing waits" in machine.run("queue"), 2 * DEADLINE_S
        )
        text = str((await client.call_tool("memory_read", {"path": "memory/a.md"})).content)
        assert (text.count("Low water"), text.count("High water"), "revision 0" in text) == (1, 1, False)
        assert "not reach" not in text
        assert (await client.call_tool("memory_read", {"path": "memory/old.md"})).is_error


async def test_a_snapshot_at_one_node_has_what_the_other_holds(nodes: Nodes, tmp_path: Path) -> None:
    """While that one writes. Restored without the store it has all that was acknowledged before, and whoever was revoked is out."""
    first, second = nodes.nodes
    identity, thief = first.enroll("space9"), first.enroll("thief9", "--space", "space9")
    lone = Confided(tmp_path / "lone")
    acknowledged = 0
    is_over = asyncio.Event()
    async with await first.connect(identity) as here:
        await here.attach("proj")

        async def write() -> None:
            nonlocal acknowledged
            while not is_over.is_set():
                await here.put(f"memory/{acknowledged}.md", f"note {acknowledged}\n")
                acknowledged += 1
                await asyncio.sleep(BETWEEN_S)

        writing = asyncio.create_task(write())
        await asyncio.to_thread(second.run, "backup", "init", "--to", str(tmp_path / "to"))
        await asyncio.to_thread(first.run, "device", "rm", "thief9")
        assert nodes.holder("space9") is first
        before = acknowledged
        made = await asyncio.to_thread(second.json, "backup", "--to", str(tmp_path / "to"))
        assert acknowledged > before > 0
        is_over.set()
        await writing
        assert nodes.holder("space9") is first
    assert made["behind"] == []
    proof = second.json("backup", "verify", "--to", str(tmp_path / "to"))
    assert proof["spaces"]["space9"] == "proven", proof
    lone.run("restore", made["folder"], "--data", str(lone.data), "--keys", str(second.data))
    lone.serve()
    try:
        with pytest.raises(DeniedError):
            await lone.connect(thief)
        async with await lone.connect(identity) as there:
            await there.attach("proj")
            for number in range(before):
                found = await there.request("pull", {"project": "proj", "path": f"memory/{number}.md"})
                assert found["text"] == f"note {number}\n"
    finally:
        lone.end()
