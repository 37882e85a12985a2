"""Pages of add-ons that a client shows beside the results of tools, by MCP's extension for apps
(SEP-1865, version 2026-01-26).

Only a client that declares the extension sees any of it: `_meta.ui` at the tools whose results a
page shows, the page itself as a resource, and the tools that only the page calls. The client has to
keep those from its model. Since this device cannot know who calls, they do only what the agent's own
tools could do as well (`PendingDecision.is_open_to_agents`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from confide_crypto.errors import ConfideError
from confide_memory.tools.call import ToolAnswer
from confide_proxy import addons
from confide_proxy.addons import ResultView
from confide_proxy.hooks.server.pending_decisions import DecisionPlace
from confide_proxy.mcp.catalogue import DISCOVER, INITIALIZE, LIST_TOOLS, VIEW_TYPE, VIEWS_EXTENSION

MOST_BYTES: Final = 128 * 1024
ANSWER_S: Final = 9.0
"""Seconds for a tool of a page, within the ten seconds of a call."""
NO_NETWORK: Final[Mapping[str, Sequence[str]]] = {
    "connectDomains": [],
    "resourceDomains": [],
    "frameDomains": [],
    "baseUriDomains": [],
}
"""The content security policy of each page: it reaches no host."""


class ResultViews:
    """The pages of all add-ons, and their tools."""

    def __init__(self, views: Sequence[ResultView]) -> None:
        self._views = {view.uri: view for view in views}
        self._uris = {tool: view.uri for view in views for tool in view.shows}
        self._tools = {str(tool.definition["name"]): (tool, view.uri) for view in views for tool in view.tools}
        self._pages: dict[str, str] = {}

    def without_tools(self) -> ResultViews:
        """Return the same pages for a client that may not use their tools."""
        return ResultViews([view._replace(tools=()) for view in self._views.values()])

    def concerns(self, tool: object) -> bool:
        """Return True if a page shows or requests the structured result of a tool."""
        return tool in self._uris or tool in self._tools

    def has(self, tool: object) -> bool:
        """Return True if only a page calls this tool."""
        return tool in self._tools

    def extended(self, method: str, result: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a method of the catalogue for a client that shows pages."""
        if method in (INITIALIZE, DISCOVER) and self._views:
            capabilities = result["capabilities"]
            extensions = {**capabilities.get("extensions", {}), VIEWS_EXTENSION: {}}
            return {**result, "capabilities": {**capabilities, "extensions": extensions}}
        if method == LIST_TOOLS:
            return {**result, "tools": [*map(self._linked, result["tools"]), *self._listed(result["tools"])]}
        return result

    def _linked(self, tool: Mapping[str, Any]) -> Mapping[str, Any]:
        uri = self._uris.get(tool["name"])
        return tool if uri is None else {**tool, "_meta": {**tool.get("_meta", {}), "ui": {"resourceUri": uri}}}

    def _listed(self, tools: Sequence[Mapping[str, Any]]) -> list[Mapping[str, object]]:
        taken = {tool["name"] for tool in tools}
        return [
            {**tool.definition, "_meta": {"ui": {"resourceUri": uri, "visibility": ["app"]}}}
            for name, (tool, uri) in self._tools.items()
            if name not in taken
        ]

    def resource(self, uri: object) -> dict[str, Any] | None:
        """Return the result of `resources/read` for a page; None for any other address. Blocks at
        the first call.
        """
        view = self._views.get(uri) if isinstance(uri, str) else None
        if view is None:
            return None
        page = self._pages.get(view.uri) or addons.loaded(view.html)()
        assert len(page.encode()) <= MOST_BYTES
        self._pages[view.uri] = page
        ui = {"csp": NO_NETWORK, "prefersBorder": True}
        return {"contents": [{"uri": view.uri, "mimeType": VIEW_TYPE, "text": page, "_meta": {"ui": ui}}]}

    async def answer(self, tool: str, arguments: object, place: DecisionPlace) -> ToolAnswer:
        """Answer a call of a tool that `has` names."""
        answer_of = await asyncio.to_thread(addons.loaded, self._tools[tool][0].answer)
        try:
            async with asyncio.timeout(ANSWER_S):
                found: ToolAnswer = await answer_of(arguments if isinstance(arguments, dict) else {}, place)
        except ConfideError as error:
            return ToolAnswer(error.with_hint)
        except TimeoutError:
            return ToolAnswer("it did not finish in time; look again before you try again")
        return found


NONE: Final = ResultViews(())
"""For a client that shows no pages."""


@cache
def installed() -> ResultViews:
    """Return the pages of the installed add-ons. The first call blocks."""
    return ResultViews([addon.view for addon in addons.installed() if addon.view is not None])
