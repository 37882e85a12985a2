"""Where the daemon keeps its files; only this module knows the names.

With `CONFIDE_HOME` set everything lives below it, so that several daemons (and tests) fit on one machine; otherwise the platform's
standard folders are used. `--data` and `--config` go before both.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

HOME_VARIABLE = "CONFIDE_HOME"


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The daemon's data folder (mode 0700) and what lies in it."""

    root: Path

    @property
    def identity(self) -> Path:
        """The seed of the daemon's own key; what callers pin is derived from it."""
        return self.root / "identity.key"

    @property
    def previous(self) -> Path:
        """The seed before that one, while a rotation is under way."""
        return self.root / "identity.previous.key"

    @property
    def following(self) -> Path:
        """The seed that is about to become the daemon's; there for a moment of a rotation only."""
        return self.root / "identity.next.key"

    @property
    def rotation(self) -> Path:
        """The statement that the current key follows the previous one, and until when both answer."""
        return self.root / "rotation.json"

    @property
    def rotation_lock(self) -> Path:
        """Held while one of these files is changed."""
        return self.root / "rotation.lock"

    @property
    def master(self) -> Path:
        """The key from which the keys of all databases are derived."""
        return self.root / "master.key"

    @property
    def registry(self) -> Path:
        """Callers, invites and spaces, encrypted."""
        return self.root / "registry.db"

    @property
    def spaces(self) -> Path:
        """One encrypted database a space."""
        return self.root / "spaces"

    def custody(self, space_id: str) -> Path:
        """Who keeps the key of that database, as JSON; absent while it is the server's first one."""
        return self.spaces / f"{space_id}.custody"

    @property
    def standing(self) -> Path:
        """Which spaces of the process that serves are locked, as JSON; absent while none serves."""
        return self.root / "daemon.spaces"

    @property
    def authorized(self) -> Path:
        """Public key lines that are trusted because only the owner of this folder can put them there."""
        return self.root / "authorized"

    @property
    def lock(self) -> Path:
        """Held by the one process that serves this folder."""
        return self.root / "daemon.lock"

    @property
    def address(self) -> Path:
        """Where that process can be reached, as JSON; absent while none serves."""
        return self.root / "daemon.address"

    def space(self, space_id: str) -> Path:
        """The database of one space."""
        return self.spaces / f"{space_id}.db"


@dataclass(frozen=True, slots=True)
class Paths:
    """The two places that a daemon is told of."""

    config: Path
    data: DataFolder


def find(*, config: Path | None = None, data: Path | None = None) -> Paths:
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
    return Paths(default_config if config is None else config.expanduser().absolute(), DataFolder(folder))
