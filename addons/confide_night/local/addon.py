"""Declares this add-on's commands, pages and reactions to `confide`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from confide_memory.commands.entries import Command, Entry
from confide_proxy.addons import Addon, Pages, ToolHandlers

_TASKS: Final = "confide_night.cli.tasks"
_ENTRIES: Final = (
    Entry(
        "add",
        _TASKS,
        "Queue a task, or one that was done once more.",
        'confide task add "Review what was merged today." --repo https://git.example.org/shop.git\n'
        'confide task add "Update the changelog." --recipe fix --schedule "30 2 * * 1-5" --max-usd 1\n'
        "confide task add --again 3f9a2c",
    ),
    Entry("ls", _TASKS, "List the tasks of all projects, newest first.", "confide task ls --status paused"),
    Entry(
        "show",
        _TASKS,
        "Show a task with its runs, or the log of a run.",
        "confide task show 3f9a2c\nconfide task show 3f9a2c --log",
    ),
    Entry("approve", _TASKS, "Approve a task that another device queued.", "confide task approve 3f9a2c"),
    Entry(
        "pause", _TASKS, "Pause a task, or resume it.", "confide task pause 3f9a2c\nconfide task pause 3f9a2c --resume"
    ),
    Entry("cancel", _TASKS, "End a task for good, and kill its runs.", "confide task cancel 3f9a2c"),
    Entry("accept", _TASKS, "Store a result as a note, after you have read it.", "confide task accept 3f9a2c"),
    Entry("report", _TASKS, "Show last night's task results, most urgent first.", "confide task report --since 7d"),
    Entry(
        "runner",
        "confide_night.cli.runner",
        "Run the tasks that are due on this device.",
        "confide task runner --init\nconfide task runner --check\nconfide task runner",
    ),
)
_COMMANDS: Final = (
    Command(
        "Tasks for the night",
        ("device",),
        Entry("task", "", "Queue tasks that a runner does at night.", commands=_ENTRIES),
        moved={
            "task log": "task show --log",
            "task run-now": "task add --again",
            "task resume": "task pause --resume",
            "report": "task report",
            "runner": "task runner",
            "runner run": "task runner --once",
            "runner init": "task runner --init",
            "runner check": "task runner --check",
            "runner ls": "task runner --runs",
            "task runner run": "task runner --once",
            "task runner init": "task runner --init",
            "task runner check": "task runner --check",
            "task runner ls": "task runner --runs",
        },
    ),
)

ADDON: Final = Addon(
    "night",
    commands=_COMMANDS,
    tools={
        "task_add": ToolHandlers(
            sent="confide_night.local.orders:to_signed_order",
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
            ("task", "confide_night.local.tasks_page:show_task", "GET"),
            ("task", "confide_night.local.tasks_page:act", "POST"),
        ),
        templates=Path(__file__).parent / "templates",
    ),
    moved="confide_night.local.moments:bring",
    given_up="confide_night.local.moments:give_up",
    other_words={"tasks": "task", "cron": "task", "schedule": "task", "morning": "task"},
)
