"""An agent's session as a coding agent has one: the official MCP client starts `confide mcp` and calls its tools.

It runs in the project's folder. What a model would decide is written down here; all else is the real protocol.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("memory_search", {"query": "why did we choose postgres?", "maxResults": 1}),
    ("memory_search", {"query": "how do I roll back a deploy", "maxResults": 1}),
    (
        "memory_store",
        {"content": "Carrier B raised its limit to 1,200 requests an hour.", "path": "memory/carriers.md"},
    ),
)
DEADLINE_S = 20.0


def said(who: str, text: str) -> None:
    """One turn, as a transcript has it."""
    bold, plain = ("\x1b[1m", "\x1b[0m") if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else ("", "")
    first, *rest = text.splitlines() or [""]
    lines = [f"{bold}{who:>7}{plain}  {first}", *(f"{'':9}{line}" for line in rest)]
    sys.stdout.write("\n".join(lines) + "\n")


async def main() -> None:
    """Connect, list the tools, call them."""
    server = StdioServerParameters(command="confide", args=["mcp"], env=dict(os.environ))
    async with asyncio.timeout(DEADLINE_S), Client(stdio_client(server)) as client:
        said("client", f"tools: {', '.join(tool.name for tool in (await client.list_tools()).tools)}")
        for tool, arguments in CALLS:
            said("agent", f"{tool} {', '.join(f'{name}={value!r}' for name, value in arguments.items())}")
            answer = await client.call_tool(tool, arguments)
            said("memory", "\n".join(getattr(part, "text", "") for part in answer.content).strip())


asyncio.run(main())
