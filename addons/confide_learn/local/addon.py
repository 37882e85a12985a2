"""Declare what this add-on brings to `confide`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from confide_memory.commands.entries import Command, Entry
from confide_proxy.addons import Addon, Pages

_COMMANDS: Final = (
    Command(
        "Memory",
        ("rm",),
        Entry(
            "learned",
            "confide_learn.cli.learned:learned_app",
            "Look at what was learned from your sessions, and keep it or not.",
        ),
    ),
    Command(
        "Memory",
        ("learned", "rm"),
        Entry("learn", "confide_learn.cli.learned", "Learn from your sessions now.", "confide learn --status"),
    ),
)

ADDON: Final = Addon(
    "learn",
    commands=_COMMANDS,
    beside="confide_learn.local.learner:beside",
    pages=Pages(
        "learned",
        "Learned",
        after=("timeline",),
        routes=(
            ("learned", "confide_learn.local.suggestions_page:show", "GET"),
            ("learned/accept", "confide_learn.local.suggestions_page:accept", "POST"),
            ("learned/refuse", "confide_learn.local.suggestions_page:refuse", "POST"),
        ),
        templates=Path(__file__).parent / "templates",
    ),
    other_words={"suggestions": "learned", "learnings": "learned"},
)
