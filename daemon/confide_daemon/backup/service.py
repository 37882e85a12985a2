"""What an operator asks about backups, done one after the other: by a running daemon, or by a command where none runs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

from confide_crypto.errors import ConfideError
from confide_daemon.access.registry import State
from confide_daemon.backup import snapshot
from confide_daemon.backup.snapshot import Follow, Source
from confide_daemon.backup.target import Target
from confide_daemon.config import BackupConfig

What = Literal["take", "verify", "prune"]
WHATS: Final[tuple[What, ...]] = get_args(What)


@dataclass(frozen=True, slots=True)
class Asked:
    """One thing to do."""

    what: What
    to: str = ""  # the target; "": the one that is configured
    name: str = ""  # of a snapshot; "": the newest


class Backups:
    """For one data folder."""

    def __init__(self, state: State, spaces: snapshot.Spaces, config: BackupConfig, config_file: Path | None) -> None:
        """`config_file`: daemon.toml, which goes into each snapshot; it may not be there."""
        self._source = Source(state, spaces, config_file)
        self._config = config
        self._turn = asyncio.Lock()

    async def do(self, asked: Asked, follow: Follow) -> dict[str, Any]:
        """Does it, behind what was asked before; what came of it, as a command shows it. Raises ConfideError."""
        target = target_of(self._config, asked.to)
        async with self._turn:
            made = await snapshot.take(self._source, target, follow=follow)
            return {"snapshot": made.id, "folder": str(target.snapshot(made.id)), "spaces": len(made.spaces)}


def target_of(config: BackupConfig, to: str) -> Target:
    """The one that is named, else the one that is configured. Raises ConfideError where there is neither."""
    if not (to or config.to):
        hint = 'name it with --to DIR, or set to = "DIR" under [backup] in daemon.toml'
        raise ConfideError("no folder for backups is configured", hint=hint)
    return Target(Path(to or config.to).expanduser().absolute())
