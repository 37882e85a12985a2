"""Declare what this add-on brings to `confide`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from confide_memory.commands.entries import Command, Entry
from confide_proxy.addons import Addon, Pages, Tool

_COMMANDS: Final = (
    Command(
        "Tasks for the night",
        ("pin",),
        Entry(
            "task",
            "confide_night.cli.tasks:task_app",
            "Queue work that a runner does while nobody watches.",
            ("confide task ls",),
            inner={
                "add": (
                    'confide task add "Review what was merged today." --repo https://git.example.org/shop.git',
                    'confide task add "Update the changelog." --recipe fix --schedule "30 2 * * 1-5" --max-usd 1',
                ),
                "ls": ("confide task ls --status paused",),
                "show": ("confide task show 3f9a2c",),
                "log": ("confide task log 3f9a2c",),
                "approve": ("confide task approve 3f9a2c",),
                "pause": ("confide task pause 3f9a2c",),
                "resume": ("confide task resume 3f9a2c",),
                "run-now": ("confide task run-now 3f9a2c",),
                "cancel": ("confide task cancel 3f9a2c",),
                "accept": ("confide task accept 3f9a2c",),
            },
        ),
    ),
    Command(
        "Tasks for the night",
        ("task",),
        Entry(
            "report",
            "confide_night.cli.tasks:report",
            "Tell what was done in the night: what needs you first.",
            ("confide report",),
        ),
    ),
    Command(
        "Service",
        ("token", "queue"),
        Entry(
            "runner",
            "confide_night.cli.runner:runner_app",
            "Do what was ordered for the night on this machine.",
            ("confide runner",),
            inner={
                "init": ("confide runner init",),
                "check": ("confide runner check",),
                "run": ("confide runner run",),
                "ls": ("confide runner ls",),
            },
        ),
    ),
)

ADDON: Final = Addon(
    "night",
    commands=_COMMANDS,
    tools={
        "task_add": Tool(
            sent="confide_night.local.orders:ordered",
            queued="confide_night.local.orders:queued_order",
        ),
        "task_cancel": Tool(queued="confide_night.local.orders:queued_end"),
    },
    key_changed="confide_night.local.devices:sign_anew",
    briefing="confide_night.local.briefing:briefing",
    pages=Pages(
        "tasks",
        "Tasks",
        after=("learned", "timeline"),
        routes=(
            ("tasks", "confide_night.local.page:every", "GET"),
            ("task", "confide_night.local.page:one", "GET"),
            ("task", "confide_night.local.page:act", "POST"),
        ),
        templates=Path(__file__).parent / "templates",
    ),
    moved="confide_night.local.moving:bring",
    given_up="confide_night.local.moving:give_up",
    other_words={"tasks": "task", "cron": "task", "schedule": "task", "morning": "report"},
)
