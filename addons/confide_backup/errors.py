"""Errors of backups, with messages for users."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from confide_crypto.errors import EXIT_STORAGE, ConfideError


class TargetError(ConfideError):
    """The backup folder is missing, not writable, full, or of another daemon."""

    exit_code = EXIT_STORAGE

    def __init__(self, folder: Path, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"the backup folder {folder} {problem}", hint=hint)


class SnapshotError(ConfideError):
    """A snapshot that is incomplete, altered, or of a newer version; `kind` says which."""

    exit_code = EXIT_STORAGE

    def __init__(
        self,
        name: str,
        problem: str,
        *,
        hint: str | None = None,
        kind: Literal["changed", "missing", "newer"] = "changed",
    ) -> None:
        super().__init__(f"the snapshot {name} {problem}", hint=hint)
        self.problem = problem
        self.kind = kind


class HookError(ConfideError):
    """A program that the operator configured to run with each snapshot has failed."""

    def __init__(self, program: str, problem: str) -> None:
        super().__init__(
            f"the program {program} of [backup] in daemon.toml {problem}",
            hint="what it has printed is in the daemon's log: confided status --log",
        )
