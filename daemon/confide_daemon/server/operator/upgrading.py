"""A data folder of an older version is brought to this one: at the start of a daemon, or by `confided upgrade` while none runs.

Each step of a database is one transaction, so a killed upgrade goes on where it was. A step that turns out to be wrong is what a snapshot
is for: without one nobody comes back. So whoever keeps memories of others has one made first, or says once that none is wanted
(docs/decisions/0026). The on-demand daemon of one machine goes on without: nobody is there to be asked.
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
    """What an upgrade has done."""

    before: Pending
    snapshot: str | None  # its name; None: none was made


def upgrade(
    folder: DataFolder, config: DaemonConfig, *, config_file: Path, on_demand: bool, wants_snapshot: bool
) -> Upgraded | None:
    """Bring a folder to this version as far as its registry goes, which lets every space follow when it is opened; None: nothing to do.

    Nobody may serve it meanwhile.

    Args:
        config_file: daemon.toml, which goes into the snapshot; it may not be there.
        on_demand: nobody is there who could be asked.
        wants_snapshot: whether one has to be made first.

    Raises UpgradeNeededError: no snapshot can be made; StorageError: a newer version wrote the folder, or it cannot be written.
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
                told = f"{error}; {error.hint}" if error.hint else str(error)
                hint = f"there is no snapshot to go back to: {told}; without one, once: confided upgrade --no-snapshot"
                raise UpgradeNeededError(folder.root, before.program, __version__, hint=hint) from None
            log.info("upgrading without a snapshot: %s", error)
    open_state(folder, may_upgrade=True, snapshot=snapshot).close()
    kept = f"; the snapshot before it is {snapshot}" if snapshot else ""
    log.info("the data folder was upgraded from confided %s to %s%s", before.program, __version__, kept)
    return Upgraded(before, snapshot)


def _snapshot(folder: DataFolder, config: DaemonConfig, config_file: Path) -> str:
    """Return the name of one of the folder as it is. Raises ConfideError: it cannot be made."""
    for addon in installed():
        if (name := addon.snapshot(folder, config, config_file)) is not None:
            return name
    raise DataFolderError(folder.root, "cannot be copied", hint="what takes snapshots is not installed")


def upgrade_spaces(folder: DataFolder, *, now: float) -> dict[str, bool]:
    """Have all spaces take their steps whose keys the server keeps: whether each has, by its name; the others do when they are unlocked.

    Copies of a store's take them when they are opened, by whoever has their leases then: another node may write to their logs now.
    Nobody may serve the folder meanwhile. Raises StorageError: one of them cannot be opened.
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
