"""Declares the commands, routes and checks of this add-on to `confide`."""

from __future__ import annotations

from typing import Final

from confide_memory.commands.entries import Command, Entry
from confide_proxy.addons import Addon

_LOCAL: Final = "confide_http.cli.local_commands"
_SIGN_IN: Final = "confide_http.cli.sign_in"
_COMMANDS: Final = (
    Command(
        "Service",
        ("panel", "secrets"),
        Entry(
            "http",
            "",
            "Let other programs use the memory over HTTP.",
            commands=(
                Entry("serve", _LOCAL, "Serve MCP, REST and the panel to programs on this device."),
                Entry(
                    "token",
                    "",
                    "Make, list or remove tokens for programs on this device.",
                    commands=(
                        Entry(
                            "new",
                            _LOCAL,
                            "Make a token, and print it once.",
                            "confide http token new editor --scope write",
                        ),
                        Entry("ls", f"{_LOCAL}:list_tokens", "List the tokens: what each may do, and its last use."),
                        Entry(
                            "rm",
                            f"{_LOCAL}:remove",
                            "Remove a token; it stops working at once.",
                            "confide http token rm editor",
                        ),
                    ),
                ),
                Entry(
                    "approve",
                    f"{_SIGN_IN}:http_approve",
                    "Approve an app that asks to connect through your server (OAuth).",
                    "confide http approve correct-horse-battery-staple-paper-clip",
                ),
                Entry("ls", f"{_SIGN_IN}:http_ls", "List the apps that connect through your server."),
                Entry("rm", f"{_SIGN_IN}:http_rm", "Disconnect an app.", "confide http rm claude"),
            ),
        ),
        moved={"serve": "http serve", "token": "http token", "gateway": "http"},
    ),
)

ADDON: Final = Addon(
    "http",
    commands=_COMMANDS,
    devices_removed="confide_http.local.server_clients:end_with",
    status="confide_http.local.server_clients:status",
    doctor="confide_http.local.server_clients:findings",
    other_words={"server": "http", "rest": "http", "tokens": "http", "oauth": "http"},
)
