"""Declares the commands and tools of this add-on to `confide`."""

from __future__ import annotations

from typing import Final

from confide_memory.commands.entries import Command, Entry
from confide_proxy.addons import Addon, ToolHandlers

_COMMANDS: Final = (
    Command(
        "Files and history",
        ("restore",),
        Entry(
            "import",
            "confide_transfer.cli.transfer:import_memories",
            "Import notes from other tools, after a preview.",
            "confide import ~/notes",
        ),
    ),
    Command(
        "Files and history",
        ("import", "restore"),
        Entry(
            "export",
            "confide_transfer.cli.transfer",
            "Export the whole memory to a folder of markdown files.",
            "confide export ~/confide-export",
        ),
    ),
    Command(
        "Service",
        ("stop", "secrets"),
        Entry(
            "move",
            "confide_transfer.cli.move",
            "Move this device's memory to a server, or back, with all its history.",
            "confide daemon move --to local",
        ),
        group="daemon",
        moved={"move": "daemon move"},
    ),
)

ADDON: Final = Addon(
    "transfer",
    commands=_COMMANDS,
    tools={"memory_import": ToolHandlers(answered="confide_transfer.local.memory_import:answer")},
    joining="confide_transfer.cli.move:hint_of_move",
    set_up="confide_transfer.cli.transfer:offer",
    bring="confide_transfer.local.memory_import:import_file",
    other_words={"backup": "export", "dump": "export", "migrate": "daemon", "transfer": "daemon"},
)
