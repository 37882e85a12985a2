"""Declares this add-on's commands, pages and background work to `confide`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from confide_memory.commands.entries import Command, Entry
from confide_proxy.addons import Addon, Pages

_PLACE: Final = "confide_learn.cli.learned"
_ENTRIES: Final = (
    Entry("ls", _PLACE, "List the suggestions that wait for your yes or no."),
    Entry(
        "keep", _PLACE, "Store suggestions as notes.", "confide learn keep 3f9a2c1b\nconfide learn keep 3f9a2c1b --edit"
    ),
    Entry(
        "refuse",
        _PLACE,
        "Delete suggestions, or notes that were learned.",
        "confide learn refuse 3f9a2c1b\nconfide learn refuse 3f9a2c1b --undo",
    ),
    Entry("now", f"{_PLACE}:learn", "Learn from your sessions now.", "confide learn now --status"),
)
_MOVED: Final = {
    "learn": "learn now",
    "learned": "learn ls",
    "learned accept": "learn keep",
    "learned edit": "learn keep --edit",
    "learned refuse": "learn refuse",
    "learned undo": "learn refuse --undo",
}
_COMMANDS: Final = tuple(
    Command("Memory", (before,), entry, group="learn", moved={} if before else _MOVED)
    for before, entry in zip(("", "ls", "keep", "refuse"), _ENTRIES, strict=True)
)

ADDON: Final = Addon(
    "learn",
    commands=_COMMANDS,
    beside="confide_learn.local.learner:background_tasks",
    decisions="confide_learn.local.suggestion_questions:pending",
    forgotten="confide_learn.local.suggestions:forget",
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
    other_words={"suggestions": "learn", "learnings": "learn"},
)
