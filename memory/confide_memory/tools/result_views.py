"""Pages of add-ons that a client shows beside the results of tools, by MCP's extension for apps
(SEP-1865, version 2026-01-26).

Only a client that declares the extension gets any of it: a link from a tool to its page
(`_meta.ui`), the page itself as a resource, and the tools that only the page calls. The client has
to hide those tools from its model. Since a server cannot know who calls, they do only things that
the agent's own tools could do as well.

The module uses little of the standard library and nothing else, since a client's first answer waits
for it to load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

EXTENSION: Final = "io.modelcontextprotocol/ui"
"""Name of the extension, which a client declares."""
MEDIA_TYPE: Final = "text/html;profile=mcp-app"
"""Media type of the pages."""
MOST_BYTES: Final = 128 * 1024
NO_NETWORK: Final[Mapping[str, Sequence[str]]] = {
    "connectDomains": [],
    "resourceDomains": [],
    "frameDomains": [],
    "baseUriDomains": [],
}
"""The content security policy of each page: it reaches no host."""
_OPENINGS: Final = frozenset({"initialize", "server/discover"})


def shows_views(capabilities: object) -> bool:
    """Return True if `capabilities`, which a client declares, say that it shows pages beside
    results.
    """
    extensions = capabilities.get("extensions") if isinstance(capabilities, Mapping) else None
    said = extensions.get(EXTENSION) if isinstance(extensions, Mapping) else None
    types = said.get("mimeTypes") if isinstance(said, Mapping) else None
    return isinstance(types, list) and MEDIA_TYPE in types


class ViewTool(NamedTuple):
    """A tool that only a page calls. Models do not see it.

    Attributes:
        definition: its entry of `tools/list`.
        answer: the function that answers it, as `module:attribute`: `async (arguments, place) ->
            ToolAnswer`. `place` is the device's `DecisionPlace`. It raises ConfideError.
    """

    definition: Mapping[str, object]
    answer: str


class ResultView(NamedTuple):
    """A page that an agent's client shows beside the results of tools.

    Attributes:
        uri: its address, which begins with `ui://`.
        title: its name for people.
        html: the function `() -> str` that returns the whole page, as `module:attribute`. It may
            block.
        shows: names of the tools whose results the page shows.
        tools: further tools, which buttons of the page call. Only a device has them.
    """

    uri: str
    title: str
    html: str
    shows: Sequence[str]
    tools: Sequence[ViewTool] = ()


class ResultViews:
    """The result pages of all add-ons, and the tools that the pages call."""

    def __init__(self, views: Sequence[ResultView]) -> None:
        self._views = {view.uri: view for view in views}
        self._uris = {tool: view.uri for view in views for tool in view.shows}
        self._tools = {str(tool.definition["name"]): (tool, view.uri) for view in views for tool in view.tools}
        self._pages: dict[str, str] = {}

    def without_tools(self) -> ResultViews:
        """Return the same pages without their tools, for a client that may not use these."""
        return ResultViews([view._replace(tools=()) for view in self._views.values()])

    def concerns(self, tool: object) -> bool:
        """Return True if a page shows the structured result of this tool, or calls the tool itself."""
        return isinstance(tool, str) and (tool in self._uris or tool in self._tools)

    def has(self, tool: object) -> bool:
        """Return True if this tool is one that only a page calls."""
        return isinstance(tool, str) and tool in self._tools

    def extend(self, method: str, result: dict[str, Any]) -> dict[str, Any]:
        """Add the pages and their tools to the `result` of an MCP method that describes the server,
        such as `tools/list`. The result of any other method is returned unchanged.
        """
        if method in _OPENINGS and self._views:
            capabilities = result["capabilities"]
            extensions = {**capabilities.get("extensions", {}), EXTENSION: {}}
            return {**result, "capabilities": {**capabilities, "extensions": extensions}}
        if method == "tools/list":
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
        """Return the result of `resources/read` for a page. None if there is no page at this
        address, or it cannot be loaded or is too large. The first call for a page blocks.
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
        return {"contents": [{"uri": view.uri, "mimeType": MEDIA_TYPE, "text": page, "_meta": {"ui": ui}}]}

    def answer_of(self, tool: str) -> str:
        """Return, as `module:attribute`, the function that answers a tool that only a page calls."""
        return self._tools[tool][0].answer


NONE: Final = ResultViews(())
"""For a client that shows no pages."""


def _page(view: ResultView) -> str:
    """Return the whole page; "" if it cannot be loaded or is too large."""
    import logging  # imported late: the client's first answer waits for this module
    from pkgutil import resolve_name

    log = logging.getLogger(__name__)
    try:
        page: str = resolve_name(view.html)()
        size_bytes = len(page.encode())
    except Exception as error:  # an add-on may raise anything; the session goes on without its page
        log.warning("the page %s cannot be loaded: %s", view.uri, type(error).__name__)
        return ""
    if size_bytes > MOST_BYTES:
        log.warning("the page %s has more than %d bytes", view.uri, MOST_BYTES)
        return ""
    return page
