"""The command `confided http`, as its help shows it."""

from __future__ import annotations

from typing import Final

from confide_memory.commands.entries import Command, Entry

_MODULE: Final = "confide_http.cli.gateway_commands"

COMMANDS: Final = (
    Command(
        "Devices",
        ("device",),
        Entry(
            "http",
            "",
            "Let apps reach a space by HTTP, with a token or by OAuth.",
            "confided http allow chat --space home\nconfided http ls",
            commands=(
                Entry(
                    "allow",
                    f"{_MODULE}:allow",
                    "Let an app in with a token, or let it ask people for access by OAuth.",
                    "confided http allow chat --space home --scope write --project shop\n"
                    "confided http allow Claude --space home --redirect https://claude.ai/api/mcp/auth_callback\n"
                    "confided http allow --open --space home",
                ),
                Entry(
                    "ls",
                    f"{_MODULE}:list_",
                    "List the apps with access, or those that are registered for OAuth.",
                    "confided http ls\nconfided http ls --apps",
                ),
                Entry(
                    "rm",
                    f"{_MODULE}:remove",
                    "Take the access of an app away, or its registration.",
                    "confided http rm chat\nconfided http rm --app Claude",
                ),
            ),
        ),
        moved={
            "gateway": "http",
            "gateway client add": "http allow",
            "gateway client ls": "http ls --apps",
            "gateway client rm": "http rm --app",
            "gateway open": "http allow --open",
        },
    ),
)
