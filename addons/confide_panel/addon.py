"""Declare what this add-on brings to `confide`."""

from __future__ import annotations

from typing import Final

from confide_memory.commands.entries import Command, Entry
from confide_proxy.addons import Addon

_COMMANDS: Final = (
    Command(
        "Memory",
        ("edit",),
        Entry(
            "open",
            "confide_panel.cli:open_page",
            "Open a file or a note in your browser.",
            "confide open memory/deploy.md",
        ),
    ),
    Command(
        "Service",
        ("queue",),
        Entry("panel", "confide_panel.cli", "Look at the memory in your browser."),
    ),
)

ADDON: Final = Addon(
    "panel",
    commands=_COMMANDS,
    rooms="confide_panel.panel_app:routes",
)
