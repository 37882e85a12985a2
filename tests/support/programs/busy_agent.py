"""An agent whose machine is behind a balancer, and which stores and searches while nodes come and go: none of its calls may fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mcp.client.client import Client
from tests.chaos.cables import Cable
from tests.support.programs.mcp_session import session
from tests.support.programs.nodes import Node
from tests.support.programs.processes import Machine

PATH = "memory/boats.md"
"""What it stores in."""


@dataclass
class BusyAgent:
    """Its calls, so many at once; each is a store and a search."""

    client: Client
    balancer: Cable
    invite: str
    at_once: int
    between_s: float
    """A pause behind each round: what calls cost, a busy machine has not."""
    stored: list[int] = field(default_factory=list)
    longest_s: float = 0.0
    """The mean of the two of the slowest call."""

    def lead_to(self, node: Node) -> None:
        """Have the balancer take new connections there."""
        self.balancer._target_port = node.port

    async def call(self) -> None:
        """One round; all of it was answered, and as it should be."""
        begun = len(self.stored)
        await asyncio.gather(*(self._call(begun + more) for more in range(self.at_once)))
        await asyncio.sleep(self.between_s)

    async def text(self) -> str:
        """What is there of all that it has stored."""
        return str((await self.client.call_tool("memory_read", {"path": PATH})).content)

    def require_once(self, text: str) -> None:
        """Each of its stores is there once."""
        assert {number: text.count(f"Boat {number} lies") for number in self.stored} == dict.fromkeys(self.stored, 1)

    async def _call(self, number: int) -> None:
        began = time.monotonic()
        said = {"content": f"Boat {number} lies here.", "path": PATH}
        result = await self.client.call_tool("memory_store", said)
        assert not result.is_error, result.content
        found = await self.client.call_tool("memory_search", {"query": "tide tables"})
        assert "harbour" in str(found.content)
        self.longest_s = max(self.longest_s, (time.monotonic() - began) / 2)
        self.stored.append(number)


@asynccontextmanager
async def busy_agent(
    folder: Path, space: str, *, holder: Node, through: Node, inviter: Node, at_once: int, between_s: float = 0.0
) -> AsyncIterator[BusyAgent]:
    """One of a new space, once it has made its first calls.

    Args:
        holder: the node that a first machine of the space comes to, with a file that searches find.
        through: where the balancer leads in the beginning.
        inviter: where its machine is invited.
    """
    async with await holder.connect(holder.enroll(space)) as first:
        await first.attach("proj")
        await first.put("memory/a.md", "the harbour master keeps the tide tables\n")
    balancer = Cable(through.port)
    try:
        machine = Machine(folder, "ann", is_set_up=False)
        machine.call_project("proj")
        url = f"confide://127.0.0.1:{balancer.port}"
        invite = inviter.json("invite", "ann", "--space", space, "--no-wait", "--url", url)["invite"]
        await asyncio.to_thread(machine.run, "join", invite)
        async with session(machine) as client:
            agent = BusyAgent(client, balancer, invite, at_once, between_s)
            await agent.call()
            yield agent
    finally:
        balancer.close()
