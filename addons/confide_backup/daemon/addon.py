"""The daemon's add-on for backups: nightly snapshots, a snapshot before an upgrade, and the checks
of doctor.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

from confide_backup.daemon.backup_service import Backups, target_of
from confide_backup.daemon.offline_spaces import OfflineSpaces
from confide_backup.daemon.operator import BackupDesk
from confide_backup.daemon.snapshot import take
from confide_backup.daemon.target import SnapshotHistory
from confide_backup.settings import BackupConfig
from confide_crypto.errors import ConfideError
from confide_daemon import config as configuration
from confide_daemon.access.registry import open_state
from confide_daemon.addons import Addon, Check, DaemonHost, Service
from confide_daemon.config import DaemonConfig
from confide_daemon.datadir.paths import DaemonPaths, DataFolder


class Backup(Addon):
    """The daemon's add-on that takes, verifies, removes and restores snapshots of the data folder."""

    def service(self, daemon: DaemonHost) -> Service:
        """Return the service that takes snapshots daily and when a command requests one."""
        backups = Backups(daemon.state, daemon.spaces, daemon.config.table(BackupConfig), daemon.config_file)
        return BackupDesk(backups, daemon.verbs, daemon.gauges, daemon.spaces.disk)

    def revocation_folders(self, config: DaemonConfig) -> Mapping[str, str]:
        """Return the folders that get a copy of the list of revoked keys, by the name of the option
        that sets each.
        """
        settings = config.table(BackupConfig)
        return {"[backup] revoked": settings.revoked, "[backup] to": settings.to}

    def snapshots_to(self, config: DaemonConfig) -> str:
        """Return the configured folder of the snapshots, "" if none is configured."""
        return config.table(BackupConfig).to

    def snapshot(self, folder: DataFolder, config: DaemonConfig, config_file: Path) -> str:
        """Take a snapshot of the folder as it is, into the configured folder, and return its name.
        Raise ConfideError if that fails.
        """
        target = target_of(config.table(BackupConfig), "")
        with closing(open_state(folder, as_it_is=True)) as state:
            made, _ = asyncio.run(take(state, OfflineSpaces(state), config_file, target))
            return made.id

    def checks(self, paths: DaemonPaths, follow: Callable[[str], None]) -> Iterable[Check]:
        """Check that every space has a verified snapshot that is recent enough."""
        follow("looking at the backups")
        return _backups(paths)


def _backups(found: DaemonPaths) -> Iterator[Check]:
    """Check that every space has a proven snapshot that is recent enough, and that the snapshots
    are on another disk.
    """

    settings = configuration.load(found.config).table(BackupConfig)
    if not settings.to:
        hint = "confided backup init --to DIR; this daemon does not know of a copy made in another way"
        yield Check("backups", detail=f"no folder for them is configured ({hint})")
        return
    target = target_of(settings, "")
    try:
        with closing(open_state(found.data)) as state:
            history = SnapshotHistory.read(target, state)
            spaces = {one: name for name, one in state.registry.spaces().items() if found.data.space(one).exists()}
        late = [spaces[one] for one in history.unproven(spaces, now=time.time(), max_age_s=settings.max_age_s)]
    except ConfideError as error:
        yield Check("backups", str(error), error.hint)
        return
    newest = history.newest
    said = "none yet" if newest is None else f"the newest is {newest.id}: {newest.status_text}"
    if late:
        hint = "confided backup, then confided backup verify; one that is locked is proven when a device next connects"
        yield Check("backups", f"without a proven one of the last {settings.max_age}: {', '.join(late)}", hint, said)
    else:
        yield Check("backups", detail=f"{len(history.whole)}; {said}")
    for name, trouble in history.strange.items():
        yield Check(f"snapshot {name}", trouble.problem, trouble.hint or "if it is of no use to you, move it away")
    if target.folder.stat().st_dev == found.data.root.stat().st_dev:
        yield Check(
            "disk of the backups",
            "it is the data folder's own: one fault takes both",
            "name a folder on another disk: confided backup init --to DIR",
        )
