"""The commands of `confided` about the store, as its help shows them."""

from __future__ import annotations

from typing import Final

from confide_memory.commands.entries import Command, Entry

COMMANDS: Final = (
    Command(
        "Data",
        ("backup", "upgrade"),
        Entry(
            "store",
            "confide_cluster.cli.store:store_app",
            "Keep every write of the spaces in a PostgreSQL as well.",
            "confided store status",
        ),
    ),
)
