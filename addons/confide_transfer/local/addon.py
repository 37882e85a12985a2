"""Declare what this add-on brings to `confide`."""

from __future__ import annotations

from typing import Final

from confide_memory.commands.entries import Command, Entry
from confide_proxy.addons import Addon, ToolHandlers

_COMMANDS: Final = (
    Command(
        "Files and history",
        ("trust",),
        Entry(
            "import",
            "confide_transfer.cli.transfer:import_memories",
            "Take over notes from other programs, after a look at them.",
            "confide import ~/notes",
        ),
    ),
    Command(
        "Files and history",
        ("import", "trust"),
        Entry(
            "export",
            "confide_transfer.cli.transfer",
            "Write the whole memory into a folder, as markdown files.",
            "confide export ~/confide-export",
        ),
    ),
    Command(
        "Machines and keys",
        ("recovery",),
        Entry(
            "move",
            "confide_transfer.cli.move",
            "Move this machine's memory to a server, or back, with all its history.",
            "confide move --to local",
        ),
    ),
)

ADDON: Final = Addon(
    "transfer",
    commands=_COMMANDS,
    tools={"memory_import": ToolHandlers(answered="confide_transfer.local.memory_import:answer")},
    joining="confide_transfer.cli.move:hint_of_move",
    set_up="confide_transfer.cli.transfer:offer",
    bring="confide_transfer.local.memory_import:brought",
    other_words={"backup": "export", "dump": "export", "migrate": "move", "transfer": "move"},
)
