"""A tool call from its name and arguments to its result, whatever happens in between.

What goes wrong in a tool is a result that the agent reads (`isError`), not a protocol error: it names what was wrong and the way out, and
carries no stack trace, key, or other caller's data.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types
from mcp.shared.exceptions import MCPError

from confide_crypto.errors import ConfideError
from confide_daemon.errors import ToolError
from confide_daemon.exchange import as_request_error
from confide_daemon.tools.arguments import check
from confide_daemon.tools.catalogue import Tool, tools
from confide_daemon.tools.context import ToolContext

log = logging.getLogger(__name__)

# The proxy answers for the daemon after ten seconds (tools design, last section); an error of ours says more than its guess.
CALL_DEADLINE_S = 9.5
LONG_DEADLINE_S = 900.0
# MCP 2025-11-25, "Resources", "Error Handling".
RESOURCE_NOT_FOUND = -32002


async def run(
    name: str, arguments: Mapping[str, Any] | None, context: ToolContext, toolsets: Sequence[str]
) -> mcp_types.CallToolResult:
    """Call a tool of these toolsets.

    Raises:
        MCPError: there is no such tool.
    """
    tool = _tool(name, toolsets)
    started = time.monotonic()
    outcome = "failed"
    try:
        async with asyncio.timeout(LONG_DEADLINE_S if tool.DEFINITION.is_long else CALL_DEADLINE_S):
            result = await tool.call(context, check(tool.DEFINITION, arguments))
        outcome = "done"
        return mcp_types.CallToolResult(
            content=[mcp_types.TextContent(text=result.text)], structured_content=result.structured
        )
    except ConfideError as error:
        code = "invalid" if isinstance(error, ToolError) else as_request_error(error).code
        return refused(str(error), error.hint, code)
    except TimeoutError:
        hint = "try again; memory_status shows how busy the daemon is"
        return refused(f"{name} did not finish in time", hint, "unavailable")
    except Exception as error:
        # Neither the peer nor the log gets its text: it may quote what was stored or asked.
        log.error("%s failed: %s", name, _where(error))
        return refused(f"{name} failed inside the daemon", "whoever runs the daemon finds the place in its log")
    finally:
        log.debug("%s %s in %.1f ms", name, outcome, (time.monotonic() - started) * 1000)


def refused(problem: str, hint: str | None, code: str = "internal") -> mcp_types.CallToolResult:
    """The result that says what was wrong and the way out; the code (PROTOCOL.md 7.2) lets a command end with the right exit code."""
    text = f"{problem}\nhint: {hint}" if hint else problem
    return mcp_types.CallToolResult(
        content=[mcp_types.TextContent(text=text)], is_error=True, _meta={"confide/code": code}
    )


def protocol_code(error: ConfideError) -> int:
    """The JSON-RPC code for what goes wrong outside of tools, where errors are the protocol's."""
    code = "invalid" if isinstance(error, ToolError) else as_request_error(error).code
    codes = {"not_found": RESOURCE_NOT_FOUND, "invalid": mcp_types.INVALID_PARAMS, "denied": mcp_types.INVALID_PARAMS}
    return codes.get(code, mcp_types.INTERNAL_ERROR)


def _tool(name: str, toolsets: Sequence[str]) -> Tool:
    known = {tool.DEFINITION.name: tool for tool in tools(toolsets)}
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else f"the tools are {', '.join(known)}"
    shown = "".join(letter if letter.isprintable() else "?" for letter in name[:64])
    raise MCPError(code=mcp_types.INVALID_PARAMS, message=f"unknown tool '{shown}'; {hint}")


def _where(error: BaseException) -> str:
    """The class of an error and the line that raised it, without its text."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" at {trace.tb_frame.f_code.co_name}:{trace.tb_lineno}" if trace else ""
    return type(error).__name__ + place
