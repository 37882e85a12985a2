"""The commands of `confided` about backups, as its help shows them."""

from __future__ import annotations

from typing import Final

from confide_memory.commands.entries import Command, Entry

COMMANDS: Final = (
    Command(
        "Data",
        ("doctor",),
        Entry(
            "restore",
            "confide_backup.cli.restore",
            "Make the data folder out of a snapshot.",
            "confided restore /mnt/backups/2026-11-22T023000Z --code",
        ),
    ),
    Command(
        "Data",
        ("upgrade",),
        Entry(
            "backup",
            "confide_backup.cli.backup:backup_app",
            "Take snapshots of the data folder, and prove them.",
            "confided backup init --to /srv/backups/confide\nconfided backup ls",
        ),
    ),
)
