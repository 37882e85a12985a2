"""The commands of `confided` about the gateway, as its help shows them."""

from __future__ import annotations

from typing import Final

from confide_memory.commands.entries import Command, Entry

COMMANDS: Final = (
    Command(
        "Machines",
        ("revoke",),
        Entry(
            "gateway",
            "confide_http.cli.gateway_commands:gateway_app",
            "Let programs reach a space by HTTP, and shut them out.",
            "confided gateway allow chat --space home\nconfided gateway ls",
        ),
    ),
)
