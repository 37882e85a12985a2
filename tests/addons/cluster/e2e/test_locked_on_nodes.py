"""A space whose key its devices keep, on two nodes: whoever has the key brings it to where the space is opened."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.chaos.cables import Cable
from tests.support.daemon.postgres import Postgres
from tests.support.programs.mcp_session import session
from tests.support.programs.nodes import Node, several
from tests.support.programs.processes import Inside, wait_until


def is_kept_by_machines(node: Node) -> bool:
    return bool(node.json("space", "key", "ann")["custody"] == "caller")


async def test_an_agent_s_session_goes_on_when_the_node_is_killed_that_it_was_on(
    postgres: Postgres, tmp_path: Path
) -> None:
    """With the real programs, behind what leads to a node that lives: the other node has never seen the space, and no key of it."""
    with several(tmp_path, postgres, more="") as nodes:
        first, second = nodes.nodes
        balancer = Cable(second.port)
        machine = Inside(tmp_path, "ann", is_set_up=False)
        machine.call_project("proj")
        url = f"confide://127.0.0.1:{balancer.port}"
        invite = second.json("invite", "ann", "--no-wait", "--url", url)["invite"]
        await asyncio.to_thread(machine.run, "join", invite)
        async with session(machine) as client:
            stored = await client.call_tool("memory_store", {"content": "The tide table hangs in the hall."})
            assert not stored.is_error
            await asyncio.to_thread(wait_until, "the machines to keep the key", lambda: is_kept_by_machines(second))
            assert nodes.holder("ann") is second
            second.kill()
            balancer.lead_to(first.port)
            stored = await client.call_tool("memory_store", {"content": "Low water is at seven."})
            assert not stored.is_error
            await asyncio.to_thread(wait_until, "the other node to hold it", lambda: nodes.holder("ann") is first)
            for query, word in (("low water", "seven"), ("tide table", "hall")):
                assert word in str((await client.call_tool("memory_search", {"query": query})).content)
            assert is_kept_by_machines(first)
            # Given to the server for a while, and back, as docs/cluster.md has it for a move.
            assert (await asyncio.to_thread(first.json, "space", "key", "ann", "server"))["custody"] == "server"
            await asyncio.to_thread(
                first.run, "space", "key", "ann", "caller"
            )  # a machine that is connected brings the key
            await asyncio.to_thread(wait_until, "the machines to keep the key", lambda: is_kept_by_machines(first))
        balancer.close()
