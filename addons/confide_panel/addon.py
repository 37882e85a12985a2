"""Declare what this add-on brings to `confide`."""

from __future__ import annotations

from typing import Final

from confide_memory.commands.entries import Command, Entry
from confide_panel.views.memory_view import VIEW
from confide_proxy.addons import Addon

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

ADDON: Final = Addon(
    "panel",
    commands=_COMMANDS,
    view=VIEW,
    approves="confide_panel.use_questions:ask",
    rooms="confide_panel.panel_app:routes",
)
