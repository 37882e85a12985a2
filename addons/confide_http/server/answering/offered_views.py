"""Adds pages that add-ons show beside results, for clients of the gateway that can show them
(`confide_memory.tools.result_views`).

The pages come without buttons. What waits for a user's decision, such as a conflict in a file or a
suggestion from a session, is on a device and cannot be decided here.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from confide_daemon import addons
from confide_daemon.server.mcp.mcp_protocol import MODERN_VERSIONS, SERVER, complete
from confide_memory.tools.call import STRUCTURED
from confide_memory.tools.result_views import NONE, ResultViews, shows_views


class OfferedViews:
    """Middleware of the SDK that adds the add-ons' pages to the answers for clients that can show
    them. Answers for other clients stay unchanged.
    """

    def __init__(self, server_info: Mapping[str, object]) -> None:
        """`server_info` is stamped on each result of the later era."""
        self._server_info = server_info

    async def __call__(self, context: ServerRequestContext[Any, Any], answer: CallNext) -> HandlerResult:
        params: Mapping[str, Any] = context.params or {}
        views = _installed_views() if _shows_views(context, params) else NONE
        if context.method == "resources/read":
            page = await asyncio.to_thread(views.resource, params.get("uri"))
            if page is not None:
                return self._read(context, page)
        if context.method == "tools/call" and views.concerns(params.get("name")):
            meta = {**(params.get("_meta") or {}), STRUCTURED: True}
            context = dataclasses.replace(context, params={**params, "_meta": meta})
        result = await answer(context)
        return views.extend(context.method, result) if isinstance(result, dict) else result

    def _read(self, context: ServerRequestContext[Any, Any], page: dict[str, Any]) -> dict[str, Any]:
        if context.protocol_version not in MODERN_VERSIONS:
            return page
        return complete(context.method, {**page, "_meta": {SERVER: self._server_info}})


def _shows_views(context: ServerRequestContext[Any, Any], params: Mapping[str, Any]) -> bool:
    """Return True if the sender of a request shows pages. `initialize` is its first one, and says so."""
    if context.method == "initialize":
        return shows_views(params.get("capabilities"))
    known = context.session.client_capabilities
    return known is not None and shows_views({"extensions": known.extensions})


@cache
def _installed_views() -> ResultViews:
    return ResultViews([view for addon in addons.installed() for view in addon.views]).without_tools()
