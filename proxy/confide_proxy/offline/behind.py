"""What a folder holds that the daemon has not got, or not as it is: on its way, or not to be sent at all.

It is read off the disk and the ledger, which all processes of this machine share: whoever sends the files, and whether anybody does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from confide_crypto.errors import ConfideError
from confide_proxy.config import ProxyConfig
from confide_proxy.errors import FolderError
from confide_proxy.paths import ProxyPaths
from confide_proxy.sync.folder import Folder
from confide_proxy.sync.ledger import SyncLedger, SyncReport
from confide_proxy.sync.project import Project
from confide_proxy.sync.project_names import ProjectNames
from confide_proxy.sync.replica import Replica
from confide_proxy.sync.workspace import extra_of

MOST_FOLDERS: Final = 64
"""Of other projects that are looked at, those that were met last."""
MOST_READ: Final = 64
"""Files that nobody has confirmed, of which one look reads so many: those beyond count as on their way."""


class Behind(NamedTuple):
    """Of some folders.

    Attributes:
        pending: (project, path) of the files that are on their way, or will be.
        unsent: the same of those that cannot be sent as they are, and why.
    """

    pending: tuple[tuple[str, str], ...] = ()
    unsent: Mapping[tuple[str, str], str] = {}

    def of(self, projects: Collection[str] | None) -> Behind:
        """Of these projects alone; None: of all."""
        if projects is None:
            return self
        unsent = {name: why for name, why in self.unsent.items() if name[0] in projects}
        return Behind(tuple(name for name in self.pending if name[0] in projects), unsent)


def behind(replicas: Iterable[Replica]) -> Behind:
    """What of some folders is behind. Blocks; reads the files that look changed."""
    pending: list[tuple[str, str]] = []
    unsent: dict[tuple[str, str], str] = {}
    for replica in replicas:
        project = replica.folder.project
        try:
            waiting, why = _of(replica)
        except FolderError as error:  # it holds too many files
            unsent[project, error.path] = error.problem
        else:
            pending += ((project, path) for path in waiting if path not in why)
            unsent |= {(project, path): reason for path, reason in why.items()}
    return Behind(tuple(pending), unsent)


def _of(replica: Replica) -> tuple[list[str], dict[str, str]]:
    """The paths that are behind, and of those that cannot be sent why."""
    folder, waiting = replica.folder, replica.waiting()
    report = SyncReport()
    for path in waiting[:MOST_READ]:
        try:
            folder.read(path)
        except FolderError as error:
            report.skip(path, error)
    return waiting, {**{item["path"]: item["reason"] for item in report.skipped}, **dict(folder.passed_by())}


def other_folders(paths: ProxyPaths, own: str) -> dict[str, Path]:
    """The folders of other projects on this machine, by the projects' names. Blocks briefly. Raises KeyFileError."""
    decisions = ProjectNames(paths.projects).all()[-MOST_FOLDERS:]
    return {each.name: Path(each.home) for each in decisions if each.name != own}


def uncompared(paths: ProxyPaths, config: ProxyConfig, space: str, folders: Mapping[str, Path]) -> dict[str, int]:
    """How many files of folders that no session here sends the daemon has not, or not as they look. Blocks briefly."""
    found = {}
    for name, root in folders.items():
        with suppress(ConfideError, OSError):
            extra = extra_of(paths, config, Project(name, root, is_git=False), space)
            if count := _looks_behind(Folder(name, root, extra), SyncLedger(paths.ledgers, space, root)):
                found[name] = count
    return found


def _looks_behind(folder: Folder, ledger: SyncLedger) -> int:
    confirmed, forgotten = ledger.all(), ledger.forgotten()
    return sum(
        file.path not in forgotten
        and ((known := confirmed.get(file.path)) is None or not known.looks_like(file.size, file.mtime_ns, known.mark))
        for file in folder.walk()
    )
