"""Declare what this add-on brings to `confide`."""

from __future__ import annotations

from typing import Final

from confide_memory.commands.entries import Command, Entry
from confide_proxy.addons import Addon, ResultView, ViewTool

_COMMANDS: Final = (
    Command(
        "Memory",
        ("edit",),
        Entry(
            "panel",
            "confide_panel.cli",
            "Open the memory, or one file of it, in your browser.",
            "confide panel\nconfide panel memory/deploy.md",
        ),
        moved={"open": "panel"},
    ),
)

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
_VIEW: Final = ResultView(
    "ui://confide/memory",
    "Memory",
    html="confide_panel.result_view:html",
    shows=("memory_search", "memory_status"),
    tools=(
        ViewTool(_LIST, "confide_panel.view_decisions:decisions"),
        ViewTool(_DECIDE, "confide_panel.view_decisions:decide"),
    ),
)

ADDON: Final = Addon(
    "panel",
    commands=_COMMANDS,
    view=_VIEW,
    approves="confide_panel.use_questions:ask",
    rooms="confide_panel.panel_app:routes",
)
