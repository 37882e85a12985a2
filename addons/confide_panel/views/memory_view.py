"""Declare the page that an agent's client shows beside results, and the tools of its buttons, for the
proxy and the daemon. `result_view` makes the page, `view_decisions` answers the tools.
"""

from __future__ import annotations

from typing import Final

from confide_memory.tools.result_views import ResultView, ViewTool

_LIST: Final = {
    "name": "memory_decisions",
    "title": "What waits for you",
    "description": "The questions of Confide that wait for the user: proposed notes, conflicts, outdated notes.",
    "inputSchema": {"type": "object", "properties": {}},
    "annotations": {"readOnlyHint": True, "openWorldHint": False},
}
_DECIDE: Final = {
    "name": "memory_decide",
    "title": "Decide",
    "description": "Carry out what the user has chosen.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "id": {"type": "string", "maxLength": 64},
            "choice": {"type": "string", "maxLength": 200},
        },
        "required": ["id", "choice"],
    },
    "annotations": {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": False},
}
VIEW: Final = ResultView(
    "ui://confide/memory",
    "Memory",
    html="confide_panel.views.result_view:html",
    shows=("memory_search", "memory_status"),
    tools=(
        ViewTool(_LIST, "confide_panel.views.view_decisions:decisions"),
        ViewTool(_DECIDE, "confide_panel.views.view_decisions:decide"),
    ),
)
