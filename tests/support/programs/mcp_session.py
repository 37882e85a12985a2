"""The official MCP client over stdio, in either protocol era."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import anyio
import mcp_types
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.message import SessionMessage
from tests.support.deadline import DEADLINE_S
from tests.support.programs.forked import Program
from tests.support.programs.processes import CONFIDE, Machine
from tests.support.structured import StructuredClient

Era = Literal["legacy", "2026-07-28"]
ERAS: tuple[Era, ...] = ("legacy", "2026-07-28")


@asynccontextmanager
async def session(
    machine: Machine, era: Era = "legacy", *, by_sdk: bool = False, answers: Any = None
) -> AsyncIterator[Client]:
    """A session of `confide mcp` in the machine's project; `by_sdk`: the SDK starts the program too.

    `answers`: the callback that answers questions in the place of a person.
    """
    server = StdioServerParameters(command=CONFIDE, args=["mcp"], env=machine.env, cwd=machine.project)
    mode: Any = era if era == "legacy" else "auto"
    transport: Any = stdio_client(server) if by_sdk else _forked(machine)
    async with StructuredClient(transport, mode=mode, read_timeout_seconds=60, elicitation_callback=answers) as client:
        yield client


@asynccontextmanager
async def _forked(machine: Machine) -> AsyncIterator[Any]:
    """The SDK's streams over the pipes of a `Program`."""
    pipe = subprocess.PIPE
    process = Program([CONFIDE, "mcp"], cwd=machine.project, env=machine.env, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    received, incoming = anyio.create_memory_object_stream[Any](64)
    outgoing, sent = anyio.create_memory_object_stream[SessionMessage](64)

    async def receive() -> None:
        async with received:
            while line := await asyncio.to_thread(process.stdout.readline):
                message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                try:
                    await received.send(SessionMessage(message))
                except anyio.BrokenResourceError:
                    continue  # an answer after the client has left

    async def send() -> None:
        async with sent:
            async for item in sent:
                line = item.message.model_dump_json(by_alias=True, exclude_none=True)
                await asyncio.to_thread(process.stdin.write, line.encode() + b"\n")
                await asyncio.to_thread(process.stdin.flush)

    tasks = [asyncio.create_task(receive()), asyncio.create_task(send())]
    try:
        yield incoming, outgoing
    finally:
        outgoing.close()
        incoming.close()
        await asyncio.wait(tasks[1:])
        process.stdin.close()
        try:
            await asyncio.to_thread(process.wait, DEADLINE_S)
        finally:
            process.kill()
        await asyncio.gather(*tasks)
        process.stdout.close()
