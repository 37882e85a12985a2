"""The smallest stdio server on the `mcp` SDK: the reference for start-up time and memory."""

import anyio
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool


async def list_tools(_context: object, _params: object) -> ListToolsResult:
    return ListToolsResult(tools=[Tool(name="echo", description="Says it again.", input_schema={"type": "object"})])


async def call_tool(_context: object, _params: object) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text="hello")])


async def main() -> None:
    server = Server("reference", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
