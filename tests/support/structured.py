"""The official MCP client, as a program of ours uses it: it asks for structured results, and each has to fit the tool's schema."""

from __future__ import annotations

from functools import cache
from typing import Any

import jsonschema
import mcp_types
from mcp.client.client import Client

from confide_daemon.server.mcp.tool_calls import catalogue
from confide_memory.tools.call import STRUCTURED


class StructuredClient(Client):
    async def call_tool(
        self, name: str, arguments: dict[str, Any] | None = None, *args: Any, meta: Any = None, **options: Any
    ) -> mcp_types.CallToolResult:
        result = await super().call_tool(name, arguments, *args, meta={STRUCTURED: True, **(meta or {})}, **options)
        if not result.is_error and result.structured_content is not None:
            _validator(name).validate(result.structured_content)
        return result


@cache
def _validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(catalogue(["all"])["outputs"][name])
