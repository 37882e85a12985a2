"""Folders of other projects on this machine, which no session of this one sends."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from confide_crypto.errors import ConfideError
from confide_proxy.config import ProxyConfig
from confide_proxy.paths import Paths
from confide_proxy.sync.behind import looks_behind
from confide_proxy.sync.folder import Folder
from confide_proxy.sync.ledger import Ledger
from confide_proxy.sync.project_names import ProjectNames

MOST_FOLDERS: Final = 64
"""Of other projects that are looked at, those that were met last."""


def other_folders(paths: Paths, own: str) -> dict[str, Path]:
    """The folders of other projects, by the projects' names. Blocks briefly. Raises KeyFileError."""
    decisions = ProjectNames(paths.projects).all()[-MOST_FOLDERS:]
    return {each.name: Path(each.home) for each in decisions if each.name != own}


def uncompared(paths: Paths, config: ProxyConfig, space: str, folders: Mapping[str, Path]) -> dict[str, int]:
    """How many files of these the daemon has not, or not as they look. Blocks briefly."""
    found = {}
    for name, root in folders.items():
        with suppress(ConfideError, OSError):
            if count := looks_behind(Folder(name, root, config.extra), Ledger(paths.ledgers, space, root)):
                found[name] = count
    return found
