"""Declare what this add-on brings to `confide`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from confide_memory.commands.entries import Command, Entry
from confide_proxy.addons import Addon, Pages, ToolHandlers

_COMMANDS: Final = (
    Command(
        "Tasks for the night",
        ("pin",),
        Entry(
            "task",
            "confide_night.cli.tasks:task_app",
            "Queue work that a runner does while nobody watches.",
            "confide task ls",
        ),
    ),
    Command(
        "Tasks for the night",
        ("task",),
        Entry("report", "confide_night.cli.tasks", "Tell what was done in the night: what needs you first."),
    ),
    Command(
        "Service",
        ("token", "queue"),
        Entry("runner", "confide_night.cli.runner:runner_app", "Do what was ordered for the night on this machine."),
    ),
)

ADDON: Final = Addon(
    "night",
    commands=_COMMANDS,
    tools={
        "task_add": ToolHandlers(
            sent="confide_night.local.orders:ordered",
            queued="confide_night.local.orders:queued_order",
        ),
        "task_cancel": ToolHandlers(queued="confide_night.local.orders:queued_end"),
    },
    key_changed="confide_night.local.moments:sign_again",
    briefing="confide_night.local.moments:briefing",
    pages=Pages(
        "tasks",
        "Tasks",
        after=("learned", "timeline"),
        routes=(
            ("tasks", "confide_night.local.tasks_page:every", "GET"),
            ("task", "confide_night.local.tasks_page:one", "GET"),
            ("task", "confide_night.local.tasks_page:act", "POST"),
        ),
        templates=Path(__file__).parent / "templates",
    ),
    moved="confide_night.local.moments:bring",
    given_up="confide_night.local.moments:give_up",
    other_words={"tasks": "task", "cron": "task", "schedule": "task", "morning": "report"},
)
