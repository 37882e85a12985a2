"""The data folder, made and opened: the daemon's identity, the master key and the registry.

Refuses what others could read or write, as ssh does, before it reads a key.
"""

from __future__ import annotations

from dataclasses import dataclass

from confide_crypto.keys.identity import Identity, make_private_dir
from confide_daemon.access.registry import Registry
from confide_daemon.datadir.identity import Keys
from confide_daemon.datadir.identity import load as load_keys
from confide_daemon.datadir.master_key import MasterKey, credential
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.errors import DataFolderError


@dataclass(frozen=True, slots=True)
class State:
    """An opened data folder; `keys` are as they were when it was opened."""

    folder: DataFolder
    keys: Keys
    master: MasterKey
    registry: Registry

    @property
    def identity(self) -> Identity:
        """The daemon's own, the current one."""
        return self.keys.current

    def close(self) -> None:
        """Close what is open on disk."""
        self.registry.close()


def create(folder: DataFolder) -> bool:
    """Make the folder, its keys and its registry where they are missing; True if the keys are new.

    Raises:
        DataFolderError: databases without the key that opens them.
        KeyFileError: the folder or a key in it is open to others, of a foreign owner, or not writable.
        StorageError: the registry cannot be made or opened.
    """
    for place in (folder.root, folder.spaces, folder.authorized):
        make_private_dir(place)
    is_new = not folder.identity.exists()
    if not folder.master.exists() and credential() is None:
        _require_empty(folder)
        MasterKey.create(folder.master)
    if is_new:
        Identity.generate().save(folder.identity)
    open_state(folder).close()
    return is_new


def open_state(folder: DataFolder) -> State:
    """Open a folder that `create` has made.

    Raises:
        DataFolderError: it is not set up.
        KeyFileError: the folder or a key is open to others, of a foreign owner, or damaged.
        StorageError: the registry cannot be opened.
    """
    if not (folder.master.exists() or credential()):
        _require_empty(folder)
    if not folder.identity.exists() or not (folder.master.exists() or credential()):
        raise DataFolderError(folder.root, "is not set up", hint="run: confided init")
    make_private_dir(folder.root)
    keys = load_keys(folder)
    master = MasterKey.load(folder.master)
    return State(folder, keys, master, Registry.open(folder.registry, master.registry_key()))


def _require_empty(folder: DataFolder) -> None:
    """A new master key would make what is stored unreadable for good. Raises DataFolderError."""
    if folder.registry.exists() or any(folder.spaces.glob("*.db")):
        raise DataFolderError(
            folder.root,
            "holds databases but no master.key",
            hint="restore master.key from a backup, or hand it over as the systemd credential confide-master-key",
        )
