"""The official MCP client over stdio, in either protocol era."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from tests.support.programs.processes import CONFIDE, Machine

Era = Literal["legacy", "2026-07-28"]
ERAS: tuple[Era, ...] = ("legacy", "2026-07-28")


@asynccontextmanager
async def session(machine: Machine, era: Era = "legacy") -> AsyncIterator[Client]:
    """A session of `confide mcp` in the machine's project."""
    server = StdioServerParameters(command=CONFIDE, args=["mcp"], env=machine.env, cwd=machine.project)
    mode: Any = era if era == "legacy" else "auto"
    async with Client(stdio_client(server), mode=mode, read_timeout_seconds=60) as client:
        yield client
