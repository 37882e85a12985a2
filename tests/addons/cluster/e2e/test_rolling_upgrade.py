"""Node by node to a version that changes the registry and the spaces: the older ones cannot read what it writes, and nobody notices."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.chaos.cables import Cable
from tests.support.daemon.postgres import Postgres
from tests.support.deadline import DEADLINE_S
from tests.support.network.balancer import balanced
from tests.support.network.ports import free_port
from tests.support.programs.busy_agent import PATH, BusyAgent, BusyProgram, busy_agent
from tests.support.programs.gateway import Door
from tests.support.programs.newer import newer
from tests.support.programs.nodes import Node, Nodes, several
from tests.support.programs.processes import SERVER_KEEPS, wait_until

from confide_cluster.daemon.log.replicated_tables import REGISTRY_DERIVED, rows_of, truths
from confide_crypto.errors import EXIT_STORAGE, DeniedError
from confide_crypto.keys.identity import Identity
from confide_daemon.access.registry import open_master
from confide_daemon.store.database import connect

PAUSE_S = 10.0
LONG_PAUSE_S = 15.0
NOTICED_S = 2.5
"""By then HAProxy has looked again."""
"""On a machine with twenty other things to do; `make chaos` holds the design's 5 s."""
AT_ONCE = 2
BETWEEN_S = 0.25


async def test_no_call_fails_while_nodes_become_of_a_newer_version(postgres: Postgres, tmp_path: Path) -> None:
    """The one that is still of the older version lets nobody in, gives its spaces up and ends; it does not start any more, and is there
    again once it is of the newer version. What was stored is there once."""
    with several(tmp_path, postgres) as nodes:
        first, second = nodes.nodes
        balancer = Cable(first.port)
        async with calling(nodes, tmp_path, balancer.port) as agent:
            desktop = await rolled(nodes, newer(tmp_path / "newer"), agent, lambda: balancer.lead_to(second.port))
        agent.require_once(await stored(first, desktop))
        balancer.close()
        assert agent.longest_s < PAUSE_S
        # Both have the step, and all that was written before and behind it.
        wait_until("both to have the same", lambda: everything(first) == everything(second))
        assert registry(first, "shades") == [("first", "grey")]
        assert {("desktop", None), ("ann", "of ann")} <= set(registry(first, "callers", "alias, colour"))


@pytest.mark.skipif("CONFIDE_ROLLING" not in os.environ, reason="it takes a minute; make chaos sets CONFIDE_ROLLING")
async def test_nor_does_a_request_of_a_program_fail(postgres: Postgres, tmp_path: Path) -> None:
    """Behind HAProxy as docs/cluster.md has it, which learns from `/ready` alone whom to ask; where nodes are only restarted it is
    not even told to come again."""
    programs = free_port()
    gateways = [free_port(), free_port()]
    with several(tmp_path, postgres, 0) as nodes:
        for port in gateways:
            gateway = f'[gateway]\nlisten = "127.0.0.1:{port}"\npublic_url = "http://127.0.0.1:{programs}"\n'
            nodes.add(more=SERVER_KEEPS + gateway)
        first = nodes.nodes[0]
        with balanced(
            tmp_path / "balancer", [one.port for one in nodes.nodes], gateways=gateways, programs=programs
        ) as port:
            wait_until("both to be ready", lambda: all(one.ask("/ready")[0] == 200 for one in nodes.nodes))
            async with calling(nodes, tmp_path, port) as agent:
                made = first.json("http", "allow", "chat", "--space", "boats", "--scope", "write")
                program = BusyProgram(Door(programs), made["token"])
                async with program.asking(BETWEEN_S):
                    for node in nodes.nodes:
                        await restarted(node, agent)
                    assert program.refused == 0
                    desktop = await rolled(nodes, newer(tmp_path / "newer"), agent, lambda: None)
            text = await stored(first, desktop)
            for busy in (agent, program):
                busy.require_once(text)
                assert busy.longest_s < LONG_PAUSE_S
            assert program.stored > 10


async def restarted(node: Node, agent: BusyAgent) -> None:
    """As it was, once it serves again; and the other one holds the space."""
    assert node.process is not None
    node.process.terminate()
    while running(node):
        await agent.call()
    await asyncio.to_thread(node.begin)
    await asyncio.to_thread(wait_until, "it to be ready", lambda: node.ask("/ready")[0] == 200)
    await asyncio.sleep(NOTICED_S)
    await agent.call()


def calling(nodes: Nodes, folder: Path, port: int) -> AbstractAsyncContextManager[BusyAgent]:
    first, second = nodes.nodes
    return busy_agent(folder, "boats", port, holder=first, inviter=second, at_once=AT_ONCE, between_s=BETWEEN_S)


async def rolled(nodes: Nodes, program: str, agent: BusyAgent, on_new: Callable[[], None]) -> Identity:
    """Both nodes become of the newer version, under calls; a device of the space that was enrolled between the two.

    `on_new`: told when the second one is.
    """
    first, second = nodes.nodes
    assert nodes.holder("boats") is first
    await upgraded(second, program, agent.call)
    # The older one has ended, by itself, and its machines have gone to the newer one.
    on_new()
    while running(first):
        await agent.call()
    await agent.call()
    assert nodes.holder("boats") is second
    assert first.process is not None
    assert first.process.returncode == EXIT_STORAGE
    assert "upgrade confide on this machine" in first.log
    refused = await asyncio.to_thread(first.run, "serve", "--listen", "127.0.0.1:0", code=EXIT_STORAGE)
    assert "a newer version of confide has written it" in refused.stderr
    assert "nothing to do" in (await asyncio.to_thread(second.run, "upgrade", "--check")).stdout
    desktop = await asyncio.to_thread(second.enroll, "desktop", "--space", "boats")
    await upgraded(first, program, agent.call)
    await asyncio.to_thread(wait_until, "it to be ready", lambda: first.ask("/ready")[0] == 200)
    await agent.call()
    return desktop


async def stored(node: Node, identity: Identity) -> str:
    """What was stored by those who called, once what was there before is found to be whole."""
    async with await node.connect(identity) as machine:
        await machine.attach("proj")
        found = await machine.request("pull", {"project": "proj", "path": "memory/a.md"})
        assert found["text"].startswith("the harbour master")
        return str((await machine.request("pull", {"project": "proj", "path": PATH}))["text"])


def running(node: Node) -> bool:
    return node.process is not None and node.process.poll() is None


async def upgraded(node: Node, program: str, calls: Any) -> None:
    """Ended, if it still serves, and started as another program, while it is called."""
    if running(node):
        assert node.process is not None
        node.process.terminate()
    while running(node):
        await calls()
    node.program = program
    told = await asyncio.to_thread(node.run, "upgrade", "--check")
    assert "those of an older version end when this one serves" in told.stdout
    for copy in (node.data / "spaces").glob(
        "*.db*"
    ):  # as of a pod that is made anew; else it wants a snapshot, or a word
        copy.unlink()
    beginning = asyncio.create_task(asyncio.to_thread(node.begin))
    while not beginning.done():
        await calls()
    await beginning


def opened(node: Node) -> apsw.Connection:
    return connect(node.folder.registry, open_master(node.folder).registry_key(), writer=False)


def registry(node: Node, table: str, columns: str = "*") -> list[Any]:
    with closing(opened(node)) as database:
        return database.execute(f"SELECT {columns} FROM {table}").fetchall()


def everything(node: Node) -> dict[str, list[Any]]:
    with closing(opened(node)) as database:
        return {table: list(rows_of(database, table)) for table in truths(database, REGISTRY_DERIVED)}


async def test_a_node_that_has_been_overtaken_lets_nobody_in(nodes: Nodes, tmp_path: Path) -> None:
    """At once, though nodes of the newer version are not there yet: who is revoked from now on, it cannot know."""
    first, second = nodes.nodes
    identity = first.enroll("quiet")
    async with await second.connect(identity) as here:
        await here.attach("proj")
        nodes.sql("UPDATE log SET schema = schema + 1 WHERE id = 'registry'")
        await asyncio.to_thread(wait_until, "it to be unready", lambda: first.ask("/ready")[0] == 503)
        assert first.ask("/ready")[1] == {"status": "unready", "reason": "version"}
        with pytest.raises(DeniedError) as denied:
            await first.connect(identity)
        assert denied.value.reason == "busy"
        # And before a lease is over all that were let in before are out.
        await here.ended_within(DEADLINE_S)
        assert here.connection.close_code == "restart"
    for node in (first, second):
        assert node.process is not None
        assert node.process.wait(DEADLINE_S) == EXIT_STORAGE
    nodes.sql("UPDATE log SET schema = schema - 1 WHERE id = 'registry'")
