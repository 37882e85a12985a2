"""Upgrades a data folder of an older version: at the start of the daemon, or by `confided upgrade`
while no daemon runs.

Each step of a database is one transaction, so a killed upgrade resumes where it was. Without a
snapshot from before, a wrong step could not be undone. So an operator who keeps other people's
memories has one made first, or states once that none is wanted (docs/decisions/0026). The on-demand
daemon of a single computer upgrades without a snapshot: there is no operator to ask.
"""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from confide_crypto.errors import ConfideError
from confide_daemon import __version__
from confide_daemon.access.history.upgrades import Pending
from confide_daemon.access.registry import RegistryState, look_at_upgrade, open_state
from confide_daemon.addons import installed
from confide_daemon.config import DaemonConfig
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.errors import DataFolderError, LockedError, UpgradeNeededError
from confide_daemon.spaces.custodian import Custodian
from confide_daemon.store.space_store import Store

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Upgraded:
    """The result of an upgrade: what was pending before, and the snapshot that was made."""

    before: Pending
    snapshot: str | None  # its name; None: none was made


def upgrade(
    folder: DataFolder, config: DaemonConfig, *, config_file: Path, on_demand: bool, wants_snapshot: bool
) -> Upgraded | None:
    """Upgrade the registry of a data folder; each space then upgrades when it is opened. Return
    None if everything is up to date.

    No daemon may serve the folder meanwhile.

    Args:
        config_file: daemon.toml, to be included in the snapshot; it may be missing.
        on_demand: True if there is no operator to ask.
        wants_snapshot: True to make a snapshot first.

    Raises UpgradeNeededError if no snapshot can be made; StorageError if a newer version wrote the
    folder, or it cannot be written.
    """
    before = look_at_upgrade(folder).pending
    if before is None:
        return None
    snapshot = None
    if wants_snapshot and any(folder.spaces.glob("*.db")):
        try:
            snapshot = _snapshot(folder, config, config_file)
        except ConfideError as error:
            if not on_demand:
                message = f"{error}; {error.hint}" if error.hint else str(error)
                hint = (
                    f"there is no snapshot to go back to: {message}; without one, once: confided upgrade --no-snapshot"
                )
                raise UpgradeNeededError(folder.root, before.program, __version__, hint=hint) from None
            log.info("upgrading without a snapshot: %s", error)
    open_state(folder, may_upgrade=True, snapshot=snapshot).close()
    kept = f"; the snapshot before it is {snapshot}" if snapshot else ""
    log.info("the data folder was upgraded from confided %s to %s%s", before.program, __version__, kept)
    return Upgraded(before, snapshot)


def _snapshot(folder: DataFolder, config: DaemonConfig, config_file: Path) -> str:
    """Make a snapshot of the folder and return its name. Raises ConfideError on failure."""
    for addon in installed():
        if (name := addon.snapshot(folder, config, config_file)) is not None:
            return name
    raise DataFolderError(folder.root, "cannot be copied", hint="what takes snapshots is not installed")


def upgrade_spaces(folder: DataFolder, *, now: float) -> dict[str, bool]:
    """Upgrade all spaces whose keys the server keeps. Return {name of the space: True if it is
    upgraded}. The other spaces follow when they are unlocked.

    Spaces in a shared store upgrade when a node with their lease opens them, since another node may
    be writing to their logs. No daemon may serve the folder meanwhile. Raises StorageError if a
    space cannot be opened.
    """
    if folder.node.exists():
        return {}
    with closing(open_state(folder)) as state:
        names = state.registry.spaces()
        return {name: _take(state, one, now) for name, one in names.items() if folder.space(one).exists()}


def _take(state: RegistryState, space_id: str, now: float) -> bool:
    try:
        _, key = Custodian(space_id, state.folder, state.master).opening_key()
    except LockedError:
        return False
    Store.open(state.folder.space(space_id), key, writer=True, now=now).close()
    return True
