"""Declares the commands of `confided` for backups, with their help."""

from __future__ import annotations

from typing import Final

from confide_memory.commands.entries import Command, Entry

_MODULE: Final = "confide_backup.cli.backup"

COMMANDS: Final = (
    Command(
        "Data",
        ("doctor",),
        Entry(
            "restore",
            "confide_backup.cli.restore",
            "Restore the data folder from a snapshot.",
            "confided restore /mnt/backups/2026-11-22T023000Z --code",
        ),
    ),
    Command(
        "Data",
        ("upgrade",),
        Entry(
            "backup",
            "",
            "Take snapshots of the data folder, list, verify and remove them.",
            "confided backup init --to /srv/backups/confide\nconfided backup\nconfided backup ls",
            commands=(
                Entry(
                    "take",
                    f"{_MODULE}:take",
                    "Take a snapshot now; `confided backup` alone does the same.",
                    "confided backup\nconfided backup --prune",
                ),
                Entry(
                    "init",
                    f"{_MODULE}:init",
                    "Prepare a folder for backups, and make their key and its recovery code.",
                    "confided backup init --to /srv/backups/confide",
                ),
                Entry("ls", f"{_MODULE}:list_", "List the snapshots, oldest first.", "confided backup ls"),
                Entry(
                    "verify",
                    f"{_MODULE}:verify_",
                    "Verify a snapshot: every file, every page and a known text of each space.",
                    "confided backup verify",
                ),
            ),
            default="take",
        ),
        moved={"backup prune": "backup --prune"},
    ),
)
