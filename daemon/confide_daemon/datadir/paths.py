"""The paths of the daemon's files. No other module contains their names.

If `CONFIDE_HOME` is set, all files are below that folder, so that several daemons (and tests) can
run on one computer. Otherwise the platform's standard folders are used. The options `--data` and
`--config` override both.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

HOME_VARIABLE = "CONFIDE_HOME"


class _PathName:
    """A descriptor for the path with this name in a data folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: DataFolder, _kind: type[DataFolder]) -> Path:
        return folder.root / self._name


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The daemon's data folder (mode 0700), and the paths of the files in it."""

    root: Path

    identity = _PathName("identity.key")
    """The seed of the daemon's own key; callers pin the public key derived from it."""
    previous = _PathName("identity.previous.key")
    """The seed before that one, during a rotation."""
    following = _PathName("identity.next.key")
    """The next seed of the daemon; exists only for a moment of a rotation."""
    rotation = _PathName("rotation.json")
    """The statement that the current key follows the previous one, and until when the daemon
    accepts both.
    """
    rotation_lock = _PathName("rotation.lock")
    """Held while a process changes one of these files."""
    master = _PathName("master.key")
    """The key from which the keys of all databases are derived."""
    backup_key = _PathName("backup.key")
    """The public key to which the keys of snapshots are sealed; not secret, but protected from
    changes by others.
    """
    backup_signers = _PathName("backup.signers")
    """The daemon's previous public keys, which have signed snapshots."""
    proving = _PathName("proving")
    """Copies of databases while a snapshot is verified."""
    registry = _PathName("registry.db")
    """Callers, invites and spaces, encrypted."""
    spaces = _PathName("spaces")
    """The encrypted databases, one per space."""
    standing = _PathName("daemon.spaces")
    """The locked spaces of the running daemon, as JSON; absent while none runs."""
    authorized = _PathName("authorized")
    """Public key lines, trusted because only the owner of this folder can put them there."""
    lock = _PathName("daemon.lock")
    """Held by the process that serves this folder."""
    address = _PathName("daemon.address")
    """The address of that process, as JSON; absent while none runs."""
    node = _PathName("daemon.node")
    """The name of the last process as a node of a store; marks the spaces as copies of the store's.
    Absent without a store.
    """
    control = _PathName("daemon.sock")
    """The socket for the owner's commands to that process; absent while none runs."""
    log = _PathName("confided.log")
    """The log of a daemon that a proxy has started on demand; the proxy creates it."""

    def space(self, space_id: str) -> Path:
        return self.spaces / f"{space_id}.db"

    def custody(self, space_id: str) -> Path:
        """Return the path of the JSON file that says who keeps the key of a space's database. There
        is no file as long as the server keeps it and the key is the first one.
        """
        return self.spaces / f"{space_id}.custody"

    def forgotten_file(self, space_id: str) -> Path:
        """Return the path of the file that records a space's forgotten texts. After a restore of an
        older database, these texts are forgotten again.
        """
        return self.spaces / f"{space_id}.forgotten"

    def restore_marker(self, space_id: str) -> Path:
        """Return the path of the file that marks a space as restored until it is next opened. The
        restore is then counted, so that new revisions get new numbers.
        """
        return self.spaces / f"{space_id}.restored"


@dataclass(frozen=True, slots=True)
class DaemonPaths:
    """The paths of a daemon's data folder and configuration file."""

    config: Path
    data: DataFolder


def find(*, config: Path | None = None, data: Path | None = None) -> DaemonPaths:
    """Return the daemon's paths for this user, or below `CONFIDE_HOME`. A path that is given as an
    argument replaces the standard one.
    """
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
