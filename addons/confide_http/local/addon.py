"""Declare what this add-on brings to `confide`."""

from __future__ import annotations

from typing import Final

from confide_memory.commands.entries import Command, Entry
from confide_proxy.addons import Addon

_COMMANDS: Final = (
    Command(
        "Service",
        ("panel", "queue"),
        Entry("serve", "confide_http.cli.local_commands", "Serve the memory over HTTP to programs on this machine."),
    ),
    Command(
        "Service",
        ("serve",),
        Entry(
            "gateway",
            "confide_http.cli.sign_in:sign_in_app",
            "Let programs reach the space by the gateway of its server, and shut them out.",
            "confide gateway ls",
        ),
    ),
    Command(
        "Service",
        ("gateway",),
        Entry(
            "token",
            "confide_http.cli.local_commands:token_app",
            "Say which programs may use the memory over HTTP.",
            "confide token new editor --scope write",
        ),
    ),
)

ADDON: Final = Addon(
    "http",
    commands=_COMMANDS,
    devices_removed="confide_http.local.server_clients:end_with",
    status="confide_http.local.server_clients:status",
    doctor="confide_http.local.server_clients:findings",
    other_words={"server": "serve", "http": "serve", "rest": "serve", "tokens": "token"},
)
