"""Declares the commands of `confided` for the shared PostgreSQL store, with their help."""

from __future__ import annotations

from typing import Final

from confide_memory.commands.entries import Command, Entry

COMMANDS: Final = (
    Command(
        "Data",
        ("backup", "upgrade"),
        Entry(
            "store",
            "confide_cluster.cli.store",
            "Show the PostgreSQL store of a cluster, or move spaces into it or out of it.",
            "confided store\n"
            "confided store --to postgresql://confide@db.example.org/confide\n"
            "confided store --release home",
        ),
        moved={
            "store status": "store",
            "store move": "store",
            "store accept": "store --accept",
            "store release": "store --release",
        },
    ),
)
