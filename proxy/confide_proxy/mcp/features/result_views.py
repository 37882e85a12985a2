"""Pages of add-ons that a client shows beside the results of tools, by MCP's extension for apps
(SEP-1865, version 2026-01-26).

Only a client that declares the extension sees any of it: `_meta.ui` at the tools whose results a
page shows, the page itself as a resource, and the tools that only the page calls. The client has to
keep those from its model. Since this device cannot know who calls, they do only what the agent's own
tools could do as well (`PendingDecision.is_open_to_agents`).

The client's first answer waits for this module to load; `view_calls` answers the calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from confide_memory.errors import AddonError
from confide_proxy import addons
from confide_proxy.addons import ResultView
from confide_proxy.mcp.catalogue import DISCOVER, INITIALIZE, LIST_TOOLS, VIEW_TYPE, VIEWS_EXTENSION

MOST_BYTES: Final = 128 * 1024
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
        return isinstance(tool, str) and (tool in self._uris or tool in self._tools)

    def has(self, tool: object) -> bool:
        """Return True if only a page calls this tool."""
        return isinstance(tool, str) and tool in self._tools

    def extend(self, method: str, result: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a method of the catalogue for a client that shows pages."""
        if method in (INITIALIZE, DISCOVER) and self._views:
            capabilities = result["capabilities"]
            extensions = {**capabilities.get("extensions", {}), VIEWS_EXTENSION: {}}
            return {**result, "capabilities": {**capabilities, "extensions": extensions}}
        if method == LIST_TOOLS:
            return {**result, "tools": [*map(self._link_view, result["tools"]), *self._extend_tools(result["tools"])]}
        return result

    def _link_view(self, tool: Mapping[str, Any]) -> Mapping[str, Any]:
        uri = self._uris.get(tool["name"])
        return tool if uri is None else {**tool, "_meta": {**tool.get("_meta", {}), "ui": {"resourceUri": uri}}}

    def _extend_tools(self, tools: Sequence[Mapping[str, Any]]) -> list[Mapping[str, object]]:
        taken = {tool["name"] for tool in tools}
        return [
            {**tool.definition, "_meta": {"ui": {"resourceUri": uri, "visibility": ["app"]}}}
            for name, (tool, uri) in self._tools.items()
            if name not in taken
        ]

    def resource(self, uri: object) -> dict[str, Any] | None:
        """Return the result of `resources/read` for a page; None for any other address, and for a
        page that cannot be loaded or is too large. Blocks at the first call.
        """
        view = self._views.get(uri) if isinstance(uri, str) else None
        if view is None:
            return None
        if view.uri not in self._pages:
            self._pages[view.uri] = _page(view)
        page = self._pages[view.uri]
        if not page:
            return None
        ui = {"csp": NO_NETWORK, "prefersBorder": True}
        return {"contents": [{"uri": view.uri, "mimeType": VIEW_TYPE, "text": page, "_meta": {"ui": ui}}]}

    def answer_of(self, tool: str) -> str:
        """Return the function that answers a tool that `has` names, as `module:attribute`."""
        return self._tools[tool][0].answer


NONE: Final = ResultViews(())
"""For a client that shows no pages."""


@cache
def installed_views() -> ResultViews:
    """Return the pages of the installed add-ons; none if one of these cannot be loaded. The first
    call blocks.
    """
    try:
        return ResultViews([addon.view for addon in addons.installed() if addon.view is not None])
    except AddonError as error:
        _warn(str(error))
        return NONE


def _page(view: ResultView) -> str:
    """Return the whole page; "" if it cannot be loaded or is too large."""
    try:
        page: str = addons.load_object(view.html)()
        size_bytes = len(page.encode())
    except Exception as error:  # an add-on may raise anything; the session goes on without its page
        _warn(f"the page {view.uri} cannot be loaded: {type(error).__name__}")
        return ""
    if size_bytes > MOST_BYTES:
        _warn(f"the page {view.uri} has more than {MOST_BYTES} bytes")
        return ""
    return page


def _warn(problem: str) -> None:
    import logging  # imported late: the client's first answer waits for this module

    logging.getLogger(__name__).warning("%s", problem)
