"""Who stores and searches by way of a balancer while nodes come and go, an agent or a program: none of its calls may fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mcp.client.client import Client
from tests.support.deadline import DEADLINE_S
from tests.support.programs.door_attacks import LATER
from tests.support.programs.gateway import Door
from tests.support.programs.mcp_session import session
from tests.support.programs.nodes import Node
from tests.support.programs.processes import Machine

from confide_http.local.upstream import ENVELOPE

PATH = "memory/boats.md"
"""What they store in."""


@dataclass
class BusyAgent:
    """Its calls, so many at once; each is a store and a search."""

    client: Client
    invite: str
    at_once: int
    between_s: float
    """A pause behind each round: what calls cost, a busy machine has not."""
    stored: list[int] = field(default_factory=list)
    longest_s: float = 0.0
    """The mean of the two of the slowest call."""

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
    folder: Path, space: str, port: int, *, holder: Node, inviter: Node, at_once: int, between_s: float = 0.0
) -> AsyncIterator[BusyAgent]:
    """One of a new space, once it has made its first calls.

    Args:
        port: of the balancer.
        holder: the node that a first machine of the space comes to, with a file that searches find.
        inviter: where its machine is invited.
    """
    async with await holder.connect(holder.enroll(space)) as first:
        await first.attach("proj")
        await first.put("memory/a.md", "the harbour master keeps the tide tables\n")
    machine = Machine(folder, "ann", is_set_up=False)
    machine.call_project("proj")
    url = f"confide://127.0.0.1:{port}"
    invite = inviter.json("invite", "ann", "--space", space, "--no-wait", "--url", url)["invite"]
    await asyncio.to_thread(machine.run, "join", invite)
    async with session(machine) as client:
        agent = BusyAgent(client, invite, at_once, between_s)
        await agent.call()
        yield agent


@dataclass
class BusyProgram:
    """A program that asks a gateway behind a balancer, one request after the other, each on a connection of its own.

    Attributes:
        refused: how often it was told that nothing was done, and to come again.
    """

    door: Door
    token: str
    stored: int = 0
    refused: int = 0
    longest_s: float = 0.0

    @asynccontextmanager
    async def asking(self, between_s: float) -> AsyncIterator[None]:
        """Within this it goes on, and at the end of it none of its requests has failed."""
        is_over = asyncio.Event()

        async def ask() -> None:
            while not is_over.is_set():
                await asyncio.to_thread(self._ask)
                await asyncio.sleep(between_s)

        asking = asyncio.create_task(ask())
        try:
            yield
        finally:
            is_over.set()
            await asking

    def require_once(self, text: str) -> None:
        """Each of its stores is there once."""
        assert [text.count(f"Barge {number} lies") for number in range(self.stored)] == [1] * self.stored

    def _ask(self) -> None:
        said = {"content": f"Barge {self.stored} lies here.", "path": PATH, "project": "proj"}
        for name, arguments, word in (
            ("memory_store", said, "revision"),
            ("memory_search", {"query": "tide tables"}, "harbour"),
        ):
            began = time.monotonic()
            params = {"name": name, "arguments": arguments, "_meta": dict(ENVELOPE)}
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            headers = LATER | {"Mcp-Method": "tools/call", "Mcp-Name": name}
            answer = self.door.request("POST", "/mcp", message, token=self.token, headers=headers)
            while answer.status == 503 and time.monotonic() - began < DEADLINE_S:
                # Nothing was done, and it is told when to come again.
                self.refused += 1
                time.sleep(float(answer.headers["retry-after"]))
                answer = self.door.request("POST", "/mcp", message, token=self.token, headers=headers)
            assert (answer.status, word in answer.body.decode()) == (200, True), (name, answer.status, answer.body)
            self.longest_s = max(self.longest_s, time.monotonic() - began)
        self.stored += 1
