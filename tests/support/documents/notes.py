"""An agent that uses the tools of notes through the official MCP client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.client.client import Client
from tests.support.daemon.loopback import Machine
from tests.support.deadline import DEADLINE_S


class Agent:
    """Calls tools by name; every answer is checked against the tool's output schema."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The structured result; fails on an error."""
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, text_of(result)
        assert isinstance(result.structured_content, dict)
        return result.structured_content

    async def refused(self, tool: str, **arguments: Any) -> str:
        """The text of the error that the call ends in."""
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error, result.structured_content
        return text_of(result)

    async def note(self, content: str, **fields: Any) -> str:
        """Stores a note; its id."""
        stored = await self.call("memory_store", content=content, **({"title": content[:40]} | fields))
        return str(stored["id"])


@asynccontextmanager
async def acting(machine: Machine) -> AsyncIterator[Agent]:
    """The agent of a machine; its client lives in a task of its own, as a fixture begins and ends in different ones."""
    ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
    done = asyncio.Event()

    async def live() -> None:
        async with machine.mcp() as client:
            ready.set_result(client)
            await done.wait()

    task = asyncio.create_task(live())
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.wait([ready, task], return_when=asyncio.FIRST_COMPLETED)
    try:
        yield Agent(ready.result())
    finally:
        done.set()
        await task


def text_of(result: Any) -> str:
    """All text of a result."""
    return "\n".join(block.text for block in result.content)
