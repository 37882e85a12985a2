"""Declares this add-on's command, page and check to `confide`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from confide_memory.commands.entries import Command, Entry
from confide_proxy.addons import Addon, Pages

ADDON: Final = Addon(
    "stats",
    commands=(
        Command(
            "Memory",
            ("trust",),
            Entry(
                "stats",
                "confide_stats.cli.stats",
                "Show which notes your agents were shown and used, and what it cost.",
                "confide stats",
            ),
        ),
    ),
    checks="confide_stats.local.usage_report:check",
    pages=Pages(
        "usage",
        "Usage",
        after=("learned", "timeline"),
        routes=(("usage", "confide_stats.local.usage_page:show", "GET"),),
        templates=Path(__file__).parent / "templates",
    ),
    other_words={"usage": "stats", "statistics": "stats", "used": "stats"},
)
