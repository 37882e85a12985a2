"""Where the daemon keeps its files; only this module knows the names.

With `CONFIDE_HOME` set everything lives below it, so that several daemons (and tests) fit on one machine; otherwise the platform's
standard folders are used. `--data` and `--config` go before both.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

HOME_VARIABLE = "CONFIDE_HOME"


class _PathName:
    """What has this name in a data folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: DataFolder, _kind: type[DataFolder]) -> Path:
        return folder.root / self._name


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The daemon's data folder (mode 0700) and what lies in it."""

    root: Path

    identity = _PathName("identity.key")
    """The seed of the daemon's own key; what callers pin is derived from it."""
    previous = _PathName("identity.previous.key")
    """The seed before that one, while a rotation is under way."""
    following = _PathName("identity.next.key")
    """The seed that is about to become the daemon's; there for a moment of a rotation only."""
    rotation = _PathName("rotation.json")
    """The statement that the current key follows the previous one, and until when both answer."""
    rotation_lock = _PathName("rotation.lock")
    """Held while one of these files is changed."""
    master = _PathName("master.key")
    """The key from which the keys of all databases are derived."""
    backup_key = _PathName("backup.key")
    """The public half of the key that snapshots' keys are sealed to; nothing secret, but nobody else may choose it."""
    backup_signers = _PathName("backup.signers")
    """The public keys that the daemon had before and signed snapshots with."""
    proving = _PathName("proving")
    """Copies of databases while a snapshot is verified."""
    registry = _PathName("registry.db")
    """Callers, invites and spaces, encrypted."""
    spaces = _PathName("spaces")
    """One encrypted database a space."""
    standing = _PathName("daemon.spaces")
    """Which spaces of the process that serves are locked, as JSON; absent while none serves."""
    authorized = _PathName("authorized")
    """Public key lines that are trusted because only the owner of this folder can put them there."""
    lock = _PathName("daemon.lock")
    """Held by the one process that serves this folder."""
    address = _PathName("daemon.address")
    """Where that process can be reached, as JSON; absent while none serves."""
    node = _PathName("daemon.node")
    """Which node of a store the last process was, and that the spaces are copies of what is there; absent without a store."""
    control = _PathName("daemon.sock")
    """Where the owner's commands ask that process; absent while none serves."""
    log = _PathName("confided.log")
    """Of a daemon that a proxy has started on demand, which makes it."""

    def space(self, space_id: str) -> Path:
        return self.spaces / f"{space_id}.db"

    def custody(self, space_id: str) -> Path:
        """Who keeps the key of that database, as JSON; absent while it is the server's first one."""
        return self.spaces / f"{space_id}.custody"

    def restored(self, space_id: str) -> Path:
        """There from a restore until the space is opened: it counts that then, and numbers its revisions anew."""
        return self.spaces / f"{space_id}.restored"


@dataclass(frozen=True, slots=True)
class DaemonPaths:
    """The two places that a daemon is told of."""

    config: Path
    data: DataFolder


def find(*, config: Path | None = None, data: Path | None = None) -> DaemonPaths:
    """The daemon's places for this user, or below `CONFIDE_HOME`; an argument overrides its own place."""
    home = os.environ.get(HOME_VARIABLE)
    if home:
        root = Path(home).expanduser().absolute()
        default_config, default_data = root / "daemon.toml", root / "daemon"
    else:
        import platformdirs

        default_config = platformdirs.user_config_path("confide") / "daemon.toml"
        default_data = platformdirs.user_data_path("confide") / "daemon"
    folder = default_data if data is None else data.expanduser().absolute()
    return DaemonPaths(default_config if config is None else config.expanduser().absolute(), DataFolder(folder))
