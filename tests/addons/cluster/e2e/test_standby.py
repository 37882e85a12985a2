"""PostgreSQL with a standby that has each write before it is acknowledged: the first server is lost, and nothing else."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from tests.support.daemon.postgres import server
from tests.support.deadline import DEADLINE_S
from tests.support.programs.nodes import Nodes, Wire
from tests.support.programs.processes import wait_until

pytestmark = pytest.mark.skipif("CONFIDE_STANDBY" not in os.environ, reason="five seconds of a processor: make chaos")
WRITES = 30
LOST_AT = 10


async def test_a_server_that_is_lost_takes_nothing_with_it_that_was_acknowledged(tmp_path: Path) -> None:
    """The standby is made the first one while two nodes are written to; the registry goes on there as well."""
    with server() as primary:
        standby = primary.standby()
        try:
            nodes = Nodes(tmp_path, primary)
            hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
            name = nodes.url.rpartition("/")[2]
            url = f"postgresql://confide@{hosts}/{name}?target_session_attrs=read-write"
            try:
                first, second = nodes.add(url=url), nodes.add(url=url)
                identity = first.enroll("laptop")
                wires = [Wire(node, identity) for node in (first, second)]
                for number in range(WRITES):
                    if number == LOST_AT:
                        primary.stop(signal.SIGKILL)
                        standby.sql("SELECT pg_promote()")
                    await wires[number % 2].put(f"memory/{number}.md", f"line {number}\n")
                for number in range(WRITES):
                    assert await wires[number % 2].pull(f"memory/{number}.md") == f"line {number}\n"
                for wire in wires:
                    await wire.close()
                await asyncio.to_thread(
                    wait_until,
                    "the nodes to be ready",
                    lambda: all(node.ask("/ready")[0] == 200 for node in nodes.nodes),
                )
                desktop = second.enroll("desktop", "--space", "laptop")
                async with asyncio.timeout(DEADLINE_S), await first.connect(desktop) as machine:
                    await machine.attach("proj")
                    found = await machine.request("pull", {"project": "proj", "path": "memory/0.md"})
                    assert found["text"] == "line 0\n"
            finally:
                nodes.end()
        finally:
            standby.stop()
